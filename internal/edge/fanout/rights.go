package fanout

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
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
	leave      []string // groups left over from an earlier session
	tellGroups repeater // of telling the holder the groups of the claims, and leave
}

// known reports whether a token or the game's service said who the client is.
func (r *rights) known() bool { return !r.Claims.Expires.IsZero() }

// announce has the holder told the groups of a client whose session begins, and ends the
// older sessions of the client, wherever they are: a client is in a space once.
func (r *rights) announce(now time.Time) {
	if !r.known() {
		return
	}
	for _, g := range r.replica.Groups(r.Claims.Client) {
		if !slices.Contains(r.Claims.Groups, g) {
			r.leave = append(r.leave, g)
		}
	}
	if len(r.Claims.Groups)+len(r.leave) > 0 {
		r.tellGroups.want(now)
	}
	_ = r.Host.Publish(bus.Msg{ // an older session that does not hear it goes on beside this one
		Subject: r.Subjects.To(r.spaceName, r.Claims.Client),
		Header: map[string]string{
			subject.HeaderControl: subject.ControlReplaced, subject.HeaderSession: r.ID,
			subject.HeaderBegan: strconv.FormatInt(r.Began.UnixMicro(), 10),
		},
	})
}

// replaced reports whether the session that announces itself with m replaces this one.
func (r *rights) replaced(now time.Time, m bus.Msg) bool {
	other := m.Header[subject.HeaderSession]
	if other == r.ID || !r.known() {
		return false
	}
	began, err := strconv.ParseInt(m.Header[subject.HeaderBegan], 10, 64)
	mine := r.Began.UnixMicro()
	later := mine > began || mine == began && r.ID > other
	return err != nil || now.Sub(r.Began) >= replaceTime || !later
}

// mayWrite reports whether the client may write a state.
func (r *rights) mayWrite(st *replication.State) bool {
	return r.Claims.Write && st.Desc.Access.MayWrite(r.Claims.Client)
}

// repeatGroups has a new holder told the groups, because it may not have what the one
// before was told. What game servers changed since stays if the replica shows that the client
// has any group.
func (r *rights) repeatGroups(now time.Time) {
	if len(r.Claims.Groups) > 0 && len(r.replica.Groups(r.Claims.Client)) == 0 {
		r.tellGroups.want(now)
	}
}

// advance ends a session whose time is over. It tells the holder the groups of the client, if
// that is due, and returns when there is more to do. The holder refuses them before it has heard that the client is there.
func (r *rights) advance(now, next time.Time) time.Time {
	if at := r.Claims.Expires; !at.IsZero() {
		if !now.Before(at) {
			r.conn.Close(dnp.CloseExpired)
			return next
		}
		next = earlier(next, at)
	}
	if !r.tellGroups.ready(now, &next) {
		return next
	}
	r.tellGroups.sent(now, &next)
	m := bus.JSON(r.Subjects.ShardPublish(r.shard, r.spaceName, ""), struct {
		Op     string   `json:"op"`
		Client string   `json:"client"`
		Join   []string `json:"join,omitempty"`
		Leave  []string `json:"leave,omitempty"`
	}{"group", r.Claims.Client, r.Claims.Groups, r.leave})
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
