package edge

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// rights are what a session may, as its token or the game's service said.
type rights struct {
	known    bool      // somebody said who the client is
	readOnly bool      // it may not write states, nor make any
	expires  time.Time // when the session ends; zero for never
	groups   []string  // that it begins with
	leave    []string  // left over from an earlier session
	repeat   repeater  // of telling the holder
}

// Headers and word of the message by which a new session of a client ends the older
// ones, wherever they are: a client is in a space once.
const (
	controlReplaced = "replaced"
	headerBegan     = "Dnp-Began" // Unix microseconds
)

// replaceTime is how long two sessions of one client may begin without having heard of
// each other. Then the later one stays; otherwise always the one that is heard of.
const replaceTime = 2 * time.Second

// give gives a session that begins its rights.
func (s *session) give(now time.Time, c *auth.Claims) {
	s.may = rights{known: !c.Expires.IsZero(), readOnly: !c.Write, expires: c.Expires, groups: c.Groups}
	if !s.may.known {
		return
	}
	for _, g := range s.space.replica.Groups(s.client) {
		if !slices.Contains(c.Groups, g) {
			s.may.leave = append(s.may.leave, g)
		}
	}
	if len(s.may.groups)+len(s.may.leave) > 0 {
		s.may.repeat.want(now)
	}
	s.space.w.expects(c.Expires)
	_ = s.edge().cfg.Bus.Publish(bus.Msg{ // an older session that does not hear it is replaced by nobody's harm
		Subject: s.edge().cfg.Subjects.To(s.space.name, s.client),
		Header: map[string]string{
			subject.HeaderControl: controlReplaced, headerSession: s.id, headerBegan: strconv.FormatInt(now.UnixMicro(), 10),
		},
	})
}

// expects has the worker look when a session expires; zero is never.
func (w *Worker) expects(at time.Time) {
	if !at.IsZero() && (w.expiry.IsZero() || at.Before(w.expiry)) {
		w.expiry = at
	}
}

// giveWay ends this session because the client has a newer one.
func (s *session) giveWay(now time.Time, m bus.Msg) {
	other := m.Header[headerSession]
	if other == s.id || !s.may.known {
		return
	}
	began, err := strconv.ParseInt(m.Header[headerBegan], 10, 64)
	mine := s.began.UnixMicro()
	if err == nil && now.Sub(s.began) < replaceTime && (mine > began || mine == began && s.id > other) {
		return
	}
	s.conn.Close(dnp.CloseReplaced)
}

// mayWrite reports whether the client may write a state.
func (s *session) mayWrite(st *replication.State) bool {
	return !s.may.readOnly && st.Desc.Access.MayWrite(s.client)
}

// expire ends the sessions whose time is over and returns when the next one is.
func (w *Worker) expire(now, next time.Time) time.Time {
	if w.expiry.IsZero() {
		return next
	}
	if now.Before(w.expiry) {
		return earlier(next, w.expiry)
	}
	w.expiry = time.Time{}
	for _, sp := range w.order {
		for _, s := range sp.sessions {
			switch at := s.may.expires; {
			case at.IsZero():
			case !now.Before(at):
				s.conn.Close(dnp.CloseExpired)
			case w.expiry.IsZero() || at.Before(w.expiry):
				w.expiry = at
			}
		}
	}
	if w.expiry.IsZero() {
		return next
	}
	return earlier(next, w.expiry)
}

// advanceGroups tells the holder the groups of the client, again and again until it
// knows: it refuses them before it has heard that the client is there.
func (s *session) advanceGroups(now, next time.Time) time.Time {
	if !s.may.repeat.ready(now, &next) {
		return next
	}
	s.may.repeat.sent(now)
	s.may.repeat.ready(now, &next)
	data, err := json.Marshal(struct {
		Op     string   `json:"op"`
		Client string   `json:"client"`
		Join   []string `json:"join,omitempty"`
		Leave  []string `json:"leave,omitempty"`
	}{"group", s.client, s.may.groups, s.may.leave})
	if err != nil {
		panic("edge: groups that JSON cannot express: " + err.Error())
	}
	w := s.space.w
	m := bus.Msg{Subject: s.edge().cfg.Subjects.ShardPublish(s.space.shard, s.space.name, ""), Data: data}
	s.edge().cfg.Bus.Request(m, writeAnswer, func(answer bus.Msg, err error) {
		w.post(len(answer.Data), func(*Worker, time.Time) { s.grouped(answer.Data, err) })
	})
	return next
}

// grouped takes the holder's answer.
func (s *session) grouped(data []byte, err error) {
	var a struct {
		Error *struct{ Code replication.Code }
	}
	if err == nil && json.Unmarshal(data, &a) == nil && a.Error == nil {
		s.may.repeat.done()
		s.may.leave = nil
	}
}

// groupsAgain tells a new holder, which may not have what the one before was told. What
// game servers changed since stays if the replica shows that the client has any group.
func (s *session) groupsAgain(now time.Time) {
	if len(s.may.groups) > 0 && len(s.space.replica.Groups(s.client)) == 0 {
		s.may.repeat.want(now)
	}
}

// suspectPause is the least time between two lines of a worker about forged datagrams.
const suspectPause = time.Minute

// suspected says that somebody else seems to send for the client.
func (s *session) suspected(now time.Time) {
	w := s.space.w
	if now.Before(w.suspectAt) {
		return // the metric counts them all
	}
	w.suspectAt = now.Add(suspectPause)
	s.edge().cfg.Log.Warn("somebody seems to forge datagrams of a client", "client", s.client, "session", s.id, "space", s.space.name,
		"address", s.edge().cfg.LogAddresses.text(s.conn.Addr()))
}
