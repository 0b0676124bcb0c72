package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/natsroles"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	replview "github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A tapped is a space and a tap that follows it.
type tapped struct {
	*testing.T
	store   *replication.Store
	replica *replication.Replica
	tap     *tap
	lines   []string
	now     time.Time
}

func newTapped(t *testing.T, verify, asJSON bool) *tapped {
	p := &tapped{T: t, store: replication.NewStore(replication.StoreConfig{Space: "s", Epoch: 7}), now: time.Unix(1000, 0)}
	p.tap, p.replica = newTap("s", verify, func(r tapRecord) {
		line := r.text()
		if asJSON {
			line = jsonText(r)
		}
		p.lines = append(p.lines, line)
	})
	return p
}

// publish publishes a payload, and gives the batches to the tap, changed by damage unless it is nil.
func (p *tapped) publish(body string, damage func(batch []byte)) {
	p.Helper()
	ops, err := payload.JSON.Parse([]byte(body), "")
	if err != nil {
		p.Fatal(err)
	}
	p.store.Publish(p.now, ops)
	p.pass(0, damage)
}

// pass lets time pass.
func (p *tapped) pass(d time.Duration, damage func(batch []byte)) {
	p.now = p.now.Add(d)
	for _, o := range p.store.Advance(p.now) {
		if o.Kind != replication.OutputBatch {
			continue
		}
		b := bytes.Clone(o.Data)
		if damage != nil {
			damage(b)
		}
		p.replica.Apply(p.now, b)
	}
}

// repair gives the replica what it asks for.
func (p *tapped) repair() {
	p.Helper()
	p.now = p.now.Add(time.Second)
	for range 4 {
		request, ok := p.replica.Advance(p.now)
		if !ok {
			return
		}
		for _, part := range p.store.Repair(p.now, request) {
			p.replica.ApplyReply(p.now, part)
		}
		p.now = p.now.Add(time.Second)
	}
	p.Fatal("the replica is not content")
}

// said compares the lines since the last said.
func (p *tapped) said(why string, want ...string) {
	p.Helper()
	if got, want := strings.Join(p.lines, "\n"), strings.Join(want, "\n"); got != want {
		p.Fatalf("%s: got\n%s\nwant\n%s", why, got, want)
	}
	p.lines = nil
}

const tapTower = `{"op":"put","key":"tower","values":[{"name":"hp","type":"float32","value":93.5},{"type":"vector3f32","value":[1,2,3]},{"name":"owner","type":"string","value":null,"nullable":true}]}`

func TestTapText(t *testing.T) {
	p := newTapped(t, true, false)
	p.publish(`{"op":"put","key":"a","values":[{"type":"uint8","value":1}]}`, nil)
	p.lines = nil // the tap knows no state yet
	p.repair()
	p.said("a late tap asks for what there is", "7:1 repair assign state 1 is ref 1", "7:1 repair describe state 1", "7:1 repair + a 0=1")
	p.publish(tapTower, nil)
	p.said("a new state", "7:2 assign state 2 is ref 2", "7:2 describe state 2", `7:2 + tower hp=93.5 1=[1,2,3] owner=null`, "7:2 = a a505df1b ok")
	p.publish(`{"op":"set","key":"tower","values":{"hp":92,"owner":"Ada\u001b[2J"}}`, nil)
	p.said("text from the network does not control the terminal", `7:3 ~ tower hp=92 owner="Ada\u001b[2J"`)
	p.pass(time.Second, nil)
	sums := strings.Join(p.lines, "\n")
	if len(p.lines) != 1 || !strings.Contains(sums, "= tower ") || strings.Count(sums, " ok") != 1 {
		t.Fatalf("the checksum of a quiet state:\n%s", sums)
	}
	p.lines = nil
	p.publish(`{"op":"remove","key":"tower"}`, nil)
	p.said("the end of a state", "7:5 - tower")
	if err := p.tap.result(); err != nil {
		t.Error(err)
	}
	for _, part := range []string{"position 7:5, 1 states", "2 checksums (2 compared, 0 differ)", "1 updates"} {
		if s := p.tap.summary(p.replica); !strings.Contains(s, part) {
			t.Errorf("the summary %q lacks %q", s, part)
		}
	}
}

func TestTapJSON(t *testing.T) {
	p := newTapped(t, false, true)
	p.repair()
	p.publish(tapTower, nil)
	p.said("a new state",
		`{"epoch":7,"seq":1,"record":"assign","ref":1,"state":1,"view":0}`,
		`{"epoch":7,"seq":1,"record":"describe","ref":1,"state":1,"view":0}`,
		`{"epoch":7,"seq":1,"record":"keyframe","ref":1,"state":1,"view":0,"key":"tower","values":[{"index":0,"name":"hp","type":"float32","value":93.5},{"index":1,"type":"vector3f32","value":[1,2,3]},{"index":2,"name":"owner","type":"string","value":null}]}`)
	p.pass(time.Second, nil)
	if len(p.lines) != 1 || !strings.Contains(p.lines[0], `"crc":"`) || strings.Contains(p.lines[0], `"ok"`) {
		t.Errorf("without --verify a checksum is shown and not judged: %s", p.lines)
	}
}

// TestTapStructs: the link message tells the components of data, without which a tap shows base64.
func TestTapStructs(t *testing.T) {
	p := newTapped(t, true, false)
	p.repair()
	const tank = `"key":"tank","values":[{"name":"gun","type":"data","value":{"aim":[1,2],"shots":7},"fields":[{"name":"aim","type":"point2u8"},{"name":"shots","type":"uint16"}]}]}`
	p.publish(`{"op":"put",`+tank, nil)
	if last := p.lines[len(p.lines)-1]; last != `7:1 + tank gun="AQIHAA=="` {
		t.Errorf("without a description: %s", last)
	}
	p.publish(`{"op":"put","describe":true,`+tank, nil)
	p.publish(`{"op":"set","key":"tank","values":{"gun":{"aim":[3,4],"shots":8}}}`, nil)
	if last := p.lines[len(p.lines)-1]; last != `7:3 ~ tank gun={"aim":[3,4],"shots":8}` {
		t.Errorf("with one: %s", last)
	}
	if err := p.tap.result(); err != nil {
		t.Error(err)
	}
}

// TestTapVerify: a value that was damaged on the way is found by the next checksum, and healed.
func TestTapVerify(t *testing.T) {
	p := newTapped(t, true, true)
	p.repair()
	p.publish(tapTower, nil)
	p.publish(`{"op":"set","key":"tower","values":{"hp":92}}`, func(b []byte) { b[len(b)-1] ^= 1 })
	p.lines = nil
	p.pass(time.Second, nil)
	var r tapRecord
	if len(p.lines) != 1 || json.Unmarshal([]byte(p.lines[0]), &r) != nil || r.OK == nil || *r.OK || r.Have == r.CRC || r.Key != "tower" || r.Have == "" {
		t.Fatalf("the damage shows as %s", p.lines)
	}
	if err := p.tap.result(); err == nil || err.Error() != "1 of 1 checksums differ from the copy" {
		t.Errorf("the command ends with %v", err)
	}
	p.repair()
	p.pass(10*time.Second, nil)
	if last := p.lines[len(p.lines)-1]; !strings.Contains(last, `"record":"keyframe"`) && !strings.Contains(last, `"ok":true`) {
		t.Errorf("after the repair: %s", last)
	}
	if p.tap.differ != 1 {
		t.Errorf("%d checksums differ, want the one before the repair", p.tap.differ)
	}
}

// TestTapHostile: records that mean nothing are shown as such, and end nothing.
func TestTapHostile(t *testing.T) {
	for why, records := range map[string][]byte{
		"an unknown ref":          replview.AppendChecksum(nil, 9, 1),
		"an unknown record":       replview.Record{Ref: 1, Message: 99, Data: []byte{1}}.Append(nil),
		"an index that is beyond": replview.Record{Ref: 1, Message: replview.Update, Data: []byte{77, 1}}.Append(nil),
		"half an update":          replview.Record{Ref: 1, Message: replview.Update, Data: []byte{0, 1}}.Append(nil),
		"half a checksum":         replview.Record{Ref: 1, Message: replview.Checksum, Data: []byte{0}}.Append(nil),
		"an assignment of 0":      replview.Record{Ref: replview.NoRef, Entity: 256, Message: replview.RefIDAssign, Data: []byte{0, 0}}.Append(nil),
		"a view that is beyond":   append(replview.AppendAssign(nil, replview.Entity(1, 200), 3), replview.AppendChecksum(nil, 3, 1)...),
		"a describe of nonsense":  replview.Record{Ref: 1, Message: replview.Describe, Data: []byte{9}}.Append(nil),
	} {
		p := newTapped(t, true, false)
		p.repair()
		p.publish(tapTower, nil)
		p.lines = nil
		p.replica.Apply(p.now, append(replview.Header{Epoch: 7, Seq: 2, Prev: 1}.Append(nil), records...))
		if len(p.lines) == 0 || !strings.Contains(p.lines[len(p.lines)-1], "ERROR") || p.tap.result() == nil {
			t.Errorf("%s: shown as %q, the result is %v", why, p.lines, p.tap.result())
		}
	}
}

// FuzzTap: no batch ends the program, and what is shown is one line.
func FuzzTap(f *testing.F) {
	f.Add(replview.AppendChecksum(nil, 1, 1))
	f.Add(replview.Record{Ref: 1, Message: replview.Update, Data: []byte{0x82}}.Append(nil))
	f.Fuzz(func(t *testing.T, records []byte) {
		p := newTapped(t, true, false)
		p.repair()
		p.publish(tapTower, nil)
		p.replica.Apply(p.now, append(replview.Header{Epoch: 7, Seq: 2, Prev: 1}.Append(nil), records...))
		for _, line := range p.lines {
			if strings.ContainsAny(line, "\n\x1b") {
				t.Fatalf("%q", line)
			}
		}
	})
}

// A tapHolder holds the space s behind NATS.
type tapHolder struct {
	mu    sync.Mutex
	store *replication.Store
	nc    *nats.Conn
	subj  subject.Names
}

// serveTap starts a NATS server with the roles of a deployment, and a holder.
func serveTap(t *testing.T) (h *tapHolder, url func(user string) string) {
	t.Helper()
	srv := natstest.Start(t, 1, func(o *server.Options) {
		for _, r := range natsroles.Table(natsroles.Config{}) {
			o.Users = append(o.Users, &server.User{Username: r.Name, Password: "secret", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: r.Publish, Deny: r.PublishDeny},
				Subscribe: &server.SubjectPermission{Allow: r.Subscribe, Deny: r.SubscribeDeny},
			}})
		}
	})
	url = func(user string) string { return strings.Replace(srv.URL(), "//", "//"+user+":secret@", 1) }
	h = &tapHolder{store: replication.NewStore(replication.StoreConfig{Space: "s", Epoch: 7})}
	var err error
	if h.nc, err = nats.Connect(url("relay")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.nc.Close)
	if _, err := h.nc.Subscribe(h.subj.Repair(cluster.Shard("s", 64)), h.repair); err != nil {
		t.Fatal(err)
	}
	h.publish(t, tapTower)
	return h, url
}

func (h *tapHolder) repair(m *nats.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, part := range h.store.Repair(time.Now(), m.Data) {
		_ = h.nc.Publish(m.Reply, part)
	}
	h.advance()
}

func (h *tapHolder) advance() {
	for _, o := range h.store.Advance(time.Now()) {
		if o.Kind == replication.OutputBatch {
			_ = h.nc.Publish(h.subj.Live("s"), o.Data)
		}
	}
}

func (h *tapHolder) publish(t *testing.T, body string) {
	t.Helper()
	ops, problem := payload.JSON.Parse([]byte(body), "")
	if problem != nil {
		t.Fatal(problem)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store.Publish(time.Now(), ops)
	h.advance()
	if err := h.nc.Flush(); err != nil {
		t.Error(err)
	}
}

// followTap runs the command as a user until a line contains the text, and returns its lines.
func followTap(t *testing.T, url string, shards int, until string, between func()) (lines []string, err error) {
	t.Helper()
	c := &tapCommand{Verify: true, Sharding: config.Sharding{Shards: shards}}
	c.Space, c.NATSURL, c.SubjectPrefix, c.Timeout = "s", url, "dnp.v1", 10*time.Second
	if shards != 64 {
		c.Timeout = 500 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var published sync.WaitGroup
	defer published.Wait()
	f := c.feed(&bytes.Buffer{}, &bytes.Buffer{}, func(r tapRecord) {
		lines = append(lines, r.text())
		if len(lines) == 3 && between != nil {
			published.Go(between)
		}
		if strings.Contains(r.text(), until) {
			cancel()
		}
	})
	err = f.run(ctx, &c.NATSFlags)
	return lines, err
}

func TestTapRoles(t *testing.T) {
	t.Parallel()
	h, url := serveTap(t)
	for _, user := range []string{"observer", "admin"} {
		hp := map[string]string{"observer": "11", "admin": "12"}[user]
		lines, err := followTap(t, url(user), 64, "~ tower hp="+hp, func() { h.publish(t, `{"op":"set","key":"tower","values":{"hp":`+hp+`}}`) })
		if err != nil || len(lines) < 4 {
			t.Errorf("%s: %v, saw\n%s", user, err, strings.Join(lines, "\n"))
		}
	}
	if _, err := followTap(t, url("publisher"), 64, "nothing", nil); err == nil || !strings.Contains(err.Error(), "users with the role observer or admin may") {
		t.Errorf("as a game server it ended with %v, want an error that names the roles", err)
	}
}

// TestTapAbsent: nothing holds the space where the command asks.
func TestTapAbsent(t *testing.T) {
	t.Parallel()
	_, url := serveTap(t)
	_, err := followTap(t, url("observer"), 3, "nothing", nil)
	if err == nil || !strings.Contains(err.Error(), "another number of --shards") {
		t.Errorf("with another number of shards it ended with %v", err)
	}
}

// TestTapEnds: the command fails if a checksum differed, and tells what it has seen in any case.
func TestTapEnds(t *testing.T) {
	for damaged, want := range map[bool]string{false: "<nil>", true: "1 of 1 checksums differ from the copy"} {
		p := newTapped(t, true, false)
		p.repair()
		p.publish(tapTower, func(b []byte) {
			if damaged {
				b[len(b)-1] ^= 1
			}
		})
		p.pass(time.Second, nil)
		notes := &bytes.Buffer{}
		f := (&tapCommand{}).feed(&bytes.Buffer{}, notes, nil)
		f.tap, f.replica = p.tap, p.replica
		if err := f.end(nil); fmt.Sprint(err) != want {
			t.Errorf("damaged %v: the command ends with %v, want %s", damaged, err, want)
		}
		if !strings.Contains(notes.String(), "1 checksums (1 compared") {
			t.Errorf("damaged %v: the summary is %s", damaged, notes.String())
		}
	}
}

// TestTapHeads: a head tells of batches that got lost, if it is about this space.
func TestTapHeads(t *testing.T) {
	for why, c := range map[string]struct {
		head   []byte
		misses bool
	}{
		"a later batch": {replication.AppendHead(nil, 7, []replication.SpaceHead{{Space: "s", Seq: 9}}), true},
		"this one":      {replication.AppendHead(nil, 7, []replication.SpaceHead{{Space: "s", Seq: 1}}), false},
		"another space": {replication.AppendHead(nil, 7, []replication.SpaceHead{{Space: "t", Seq: 9}}), false},
		"malformed":     {[]byte{1, 2}, false},
	} {
		p := newTapped(t, true, false)
		p.repair()
		p.publish(tapTower, nil)
		f := (&tapCommand{SpaceFlags: SpaceFlags{Space: "s"}}).feed(&bytes.Buffer{}, &bytes.Buffer{}, nil)
		f.tap, f.replica = p.tap, p.replica
		f.head(p.now, c.head)
		if f.replica.Complete() == c.misses {
			t.Errorf("%s: the copy is complete: %v", why, f.replica.Complete())
		}
	}
}

// TestTapWaits: a wait is told, soon and then now and then.
func TestTapWaits(t *testing.T) {
	notes := &bytes.Buffer{}
	c := &tapCommand{}
	c.Space, c.Timeout = "s", time.Minute
	f := c.feed(&bytes.Buffer{}, notes, func(tapRecord) {})
	asked := 0
	f.publish = func(string, string, []byte) error { asked++; return nil }
	now := time.Unix(1000, 0)
	end := now.Add(20 * time.Second)
	f.begin(now)
	for now.Before(end) {
		wait, err := f.advance(now)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(max(wait, time.Millisecond))
	}
	if n := strings.Count(notes.String(), "waiting for the relay that holds space s: "); n != 4 {
		t.Errorf("%d notes in 20 s, want one after 1 s and then one every 5 s:\n%s", n, notes.String())
	}
	if asked < 10 || asked > 20 {
		t.Errorf("asked %d times in 20 s", asked)
	}
	now = end.Add(time.Minute)
	if _, err := f.advance(now); err == nil || !strings.Contains(err.Error(), "no relay that holds space s answered within 1m0s") {
		t.Errorf("after the timeout: %v", err)
	}
}
