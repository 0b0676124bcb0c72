package fanout

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// A session younger than replaceTime yields only to one that began later, because the two
// may begin without having heard of each other. An older session yields to any other that
// announces itself, whatever the clock of its edge says.
const replaceTime = 2 * time.Second

// rights are what a session may, as its token or the game's service said.
type rights struct {
	*peer
	began      time.Time
	known      bool      // a token or the game's service said who the client is: its claims expire
	readOnly   bool      // the client may not write states, nor make any
	expires    time.Time // when the session ends; zero for never
	join       []string  // groups that the session begins with
	leave      []string  // groups left over from an earlier session
	tellGroups repeater  // of telling the holder join and leave
}

// set sets the rights to what the client's claims say.
func (r *rights) set(c *auth.Claims) {
	r.known, r.readOnly, r.expires, r.join = !c.Expires.IsZero(), !c.Write, c.Expires, c.Groups
}

// announce has the holder told the groups of a client whose session begins, and ends the
// older sessions of the client, wherever they are: a client is in a space once.
func (r *rights) announce(now time.Time) {
	if !r.known {
		return
	}
	for _, g := range r.replica.Groups(r.client) {
		if !slices.Contains(r.join, g) {
			r.leave = append(r.leave, g)
		}
	}
	if len(r.join)+len(r.leave) > 0 {
		r.tellGroups.want(now)
	}
	_ = r.Host.Publish(bus.Msg{ // an older session that does not hear it goes on beside this one
		Subject: r.Subjects.To(r.spaceName, r.client),
		Header: map[string]string{
			subject.HeaderControl: subject.ControlReplaced, subject.HeaderSession: r.id,
			subject.HeaderBegan: strconv.FormatInt(r.began.UnixMicro(), 10),
		},
	})
}

// replaced reports whether the session that announces itself with m replaces this one.
func (r *rights) replaced(now time.Time, m bus.Msg) bool {
	other := m.Header[subject.HeaderSession]
	if other == r.id || !r.known {
		return false
	}
	began, err := strconv.ParseInt(m.Header[subject.HeaderBegan], 10, 64)
	mine := r.began.UnixMicro()
	later := mine > began || mine == began && r.id > other
	return err != nil || now.Sub(r.began) >= replaceTime || !later
}

// mayWrite reports whether the client may write a state.
func (r *rights) mayWrite(st *replication.State) bool {
	return !r.readOnly && st.Desc.Access.MayWrite(r.client)
}

// repeatGroups has a new holder told the groups, because it may not have what the one
// before was told. What game servers changed since stays if the replica shows that the client
// has any group.
func (r *rights) repeatGroups(now time.Time) {
	if len(r.join) > 0 && len(r.replica.Groups(r.client)) == 0 {
		r.tellGroups.want(now)
	}
}

// advance tells the holder the groups of the client, if that is due, and returns when the
// next request is. The holder refuses them before it has heard that the client is there.
func (r *rights) advance(now, next time.Time) time.Time {
	if !r.tellGroups.ready(now, &next) {
		return next
	}
	r.tellGroups.sent(now, &next)
	data, err := json.Marshal(struct {
		Op     string   `json:"op"`
		Client string   `json:"client"`
		Join   []string `json:"join,omitempty"`
		Leave  []string `json:"leave,omitempty"`
	}{"group", r.client, r.join, r.leave})
	if err != nil {
		panic("fanout: groups that JSON cannot express: " + err.Error())
	}
	m := bus.Msg{Subject: r.Subjects.ShardPublish(r.shard, r.spaceName, ""), Data: data}
	epoch := r.epoch
	r.Host.Request(m, answerWait, func(_ time.Time, answer []byte, err error) { r.grouped(epoch, answer, err) })
	return next
}

// grouped handles the holder's answer. An answer of an earlier epoch means nothing. The
// edge repeats a request that is refused, because every refusal passes: the names in a
// token are valid.
func (r *rights) grouped(epoch uint64, answer []byte, err error) {
	var a struct{ Error *struct{} }
	if epoch != 0 && epoch != r.epoch { // in epoch 0 the replica did not know the holder yet
		return
	}
	if err == nil && json.Unmarshal(answer, &a) == nil && a.Error == nil {
		r.tellGroups.stop()
		r.leave = nil
	}
}
