package fanout

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// lookTime is how long a crossing of a border may wait for the worker: a look, and the step of the worker's turns.
const lookTime = 200*time.Millisecond + lookStep

// A sightTest is a worker with two clients in a field, and its holder.
type sightTest struct {
	*sessionTest
	now  time.Time
	next time.Time // when the worker wants to be called
	bob  *Session
}

// newSightTest returns a field in which both clients have begun.
func newSightTest(t *testing.T) *sightTest {
	t.Helper()
	s := &sightTest{sessionTest: newSessionTest(t), now: start}
	s.store.Join("bob", "n")
	claims := newClaims()
	claims.Client = "bob"
	s.bob = s.spaces.NewSession(SessionConfig{ID: "n", Claims: claims, Began: start})
	s.bob.Begin(start, s.spaces.Endpoint.LogIn(start, netip.MustParseAddrPort("192.0.2.2:1"), nil, discard{}))
	s.begin()
	s.say(`{"op":"interest","name":"walker","at":"pos","axes":"xz","bands":[{"within":100},{"within":300,"rate":5,"precision":4},{"within":600,"rate":1}]}`)
	return s
}

// say has a game server publish ops, and the replica get what changed.
func (s *sightTest) say(ops ...string) {
	s.Helper()
	p, err := payload.JSON.Parse([]byte(`{"ops":[`+strings.Join(ops, ",")+`]}`), "")
	if err != nil {
		s.Fatal(err)
	}
	if err := s.store.Publish(s.now, p); err != nil {
		s.Fatalf("%s: %v", ops, err)
	}
	s.apply()
}

func (s *sightTest) apply() {
	s.now = s.now.Add(20 * time.Millisecond)
	for _, o := range s.store.Advance(s.now) {
		if o.Kind == replication.OutputBatch {
			s.spaces.Replica("arena").Apply(s.now, o.Data)
		}
	}
}

// put makes a state at x.
func (s *sightTest) put(key string, x float64, more string) {
	s.Helper()
	s.say(fmt.Sprintf(`{"op":"put","key":%q,"priority":6,"values":[{"name":"hp","type":"uint8","value":1},{"name":"pos","type":"vector3f32","value":[%v,0,0],"nullable":true}]%s}`, key, x, more))
}

func (s *sightTest) move(key string, x float64) {
	s.Helper()
	s.say(fmt.Sprintf(`{"op":"set","key":%q,"values":{"pos":[%v,0,0]}}`, key, x))
}

// wait lets the worker take the turns that it asks for.
func (s *sightTest) wait(d time.Duration) {
	s.Helper()
	end := s.now.Add(d)
	s.next = s.spaces.Advance(s.now)
	for standing := 0; !s.next.After(end); {
		if standing++; s.next.After(s.now) {
			standing, s.now = 0, s.next
		}
		if s.next = s.spaces.Advance(s.now); standing > 1000 {
			s.Fatalf("at %v the worker wants to be called at %v, again and again", s.now, s.next)
		}
	}
	s.now = end
}

// shows wants both clients to be shown a state like this: as "-" for no link, "asleep", "all", or the
// precision factor, rate and divisor of a level.
func (s *sightTest) shows(why, key, alice, bob string) {
	s.Helper()
	if a, b := s.shown(s.session, key), s.shown(s.bob, key); a != alice || b != bob {
		s.Errorf("%s: alice has %s and bob %s of %s, want %s and %s", why, a, b, key, alice, bob)
	}
}

func (s *sightTest) shown(session *Session, key string) string {
	st := session.space.replica.ByKey(key)
	if st == nil {
		return "no state"
	}
	_, src, l := linkTo(session.conn, st)
	switch {
	case src == nil:
		return "-"
	case l == nil:
		return "all"
	case l.asleep:
		return "asleep"
	}
	rate := 0.0
	if l.period > 0 {
		rate = math.Round(float64(time.Second) / float64(l.period))
	}
	return fmt.Sprintf("%g/%g/%d", l.factor, rate, l.divisor)
}

const walker = `,"interest":"walker"`

func sees(client, at string) string {
	return fmt.Sprintf(`{"op":"eye","client":%q,"at":%s}`, client, at)
}

// TestSights walks an object past two clients.
func TestSights(t *testing.T) {
	s := newSightTest(t)
	s.put("rock", 9000, "")
	s.put("npc", 1000, walker)
	s.say(sees("alice", `[0,0,0]`), sees("bob", `[500,0,0]`))
	s.wait(lookTime)
	s.shows("a state without an interest is seen from everywhere", "rock", "all", "all")
	for _, c := range []struct {
		x          float64
		alice, bob string
	}{
		{1000, "-", "1/1/3"}, {810, "-", "1/1/3"}, {750, "-", "4/5/2"}, {590, "1/1/3", "all"}, {290, "4/5/2", "4/5/2"}, {90, "all", "1/1/3"},
		{-90, "all", "1/1/3"}, {-250, "4/5/2", "asleep"}, {-800, "asleep", "asleep"}, {0, "all", "1/1/3"},
	} {
		s.move("npc", c.x)
		s.wait(lookTime)
		s.shows(fmt.Sprintf("npc at %v", c.x), "npc", c.alice, c.bob)
	}
	if got := s.spaces.counts.Seeing; got != 2 {
		t.Errorf("%d sessions have eyes, want 2", got)
	}
	if d := s.next.Sub(s.now); d > lookTime {
		t.Errorf("the worker wants to be called in %v, want a look at each session in %v", d, lookTime)
	}
	s.say(`{"op":"remove","key":"npc"}`)
	if s.session.sight != nil || s.session.space.near.grid != nil || s.spaces.counts.Seeing != 0 {
		t.Error("a space without interests still has sights, or a grid")
	}
}

// TestBlind: without an eye a client sees only states without an interest.
func TestBlind(t *testing.T) {
	s := newSightTest(t)
	s.put("npc", 10, walker)
	s.wait(time.Second)
	s.shows("neither has an eye", "npc", "-", "-")
	s.say(sees("alice", `[0,0,0]`))
	s.wait(0)
	s.shows("an eye opens", "npc", "all", "-")
	s.say(sees("alice", `null`))
	s.wait(lookTime)
	s.shows("it closes", "npc", "asleep", "-")
}

// TestBorders: a state enters a band at its border and leaves it a tenth outside.
func TestBorders(t *testing.T) {
	s := newSightTest(t)
	s.put("npc", 101, walker)
	s.say(sees("alice", `[0,0,0]`))
	for _, c := range []struct {
		x     float64
		alice string
	}{{101, "4/5/2"}, {100, "all"}, {109, "all"}, {111, "4/5/2"}, {109, "4/5/2"}, {600, "1/1/3"}, {659, "1/1/3"}, {661, "asleep"}, {601, "asleep"}, {599, "1/1/3"}} {
		s.move("npc", c.x)
		s.wait(lookTime)
		s.shows(fmt.Sprintf("npc at %v", c.x), "npc", c.alice, "-")
	}
}

// TestJump: an eye that jumps sees at once, and one that walks at its next look.
func TestJump(t *testing.T) {
	s := newSightTest(t)
	s.put("player", 0, walker)
	s.put("npc", 2000, walker)
	s.say(sees("alice", `"player"`), sees("bob", `"player#pos"`))
	s.wait(time.Second)
	s.shows("far away", "npc", "-", "-")
	s.move("player", 1990)
	s.wait(0)
	s.shows("both eyes jump with the player", "npc", "all", "all")
	s.say(`{"op":"set","key":"player","values":{"hp":9}}`)
	looks := s.spaces.counts.Looks
	s.wait(0)
	if s.spaces.counts.Looks != looks {
		t.Error("a value that is no place brings a look")
	}
	s.say(sees("alice", `[0,0,0]`), sees("bob", `[[0,0,0],"player"]`))
	s.move("player", 0)
	s.wait(lookTime)
	s.shows("all eyes are far away", "npc", "asleep", "asleep")
	s.move("player", 2000)
	s.wait(lookTime)
	s.shows("the player is no longer alice's eye, and bob's second one", "npc", "asleep", "all")
}

// TestNowhere: a place that is not finite, or absent, is beyond all bands, and so is an eye there.
func TestNowhere(t *testing.T) {
	s := newSightTest(t)
	s.put("npc", 10, walker)
	s.put("player", 0, "")
	s.say(sees("alice", `"player#pos"`), sees("bob", `["ghost",[0,0,0]]`))
	s.wait(lookTime)
	s.shows("near", "npc", "all", "all")
	s.say(`{"op":"set","key":"npc","values":{"pos":null}}`)
	s.wait(lookTime)
	s.shows("its place is absent, and its substitute is where the eyes are", "npc", "asleep", "asleep")
	s.move("npc", 20)
	s.wait(lookTime)
	s.shows("it has a place again", "npc", "all", "all")
	s.place("npc", math.NaN()) // game servers cannot say so, but a replica takes what comes
	s.wait(lookTime)
	s.shows("its place is not finite", "npc", "asleep", "asleep")
	s.place("npc", 20)
	s.place("player", math.Inf(1))
	s.wait(lookTime)
	s.shows("alice's eye is not finite", "npc", "asleep", "all")
	s.place("player", 0)
	s.wait(lookTime)
	s.shows("everything has a place", "npc", "all", "all")
	s.say(`{"op":"remove","key":"player"}`)
	s.wait(lookTime)
	s.shows("alice's eye is gone", "npc", "asleep", "all")
	s.put("player", 0, "")
	s.wait(lookTime)
	s.shows("it is back", "npc", "all", "all")
	s.put("ghost", 3000, walker)
	s.put("far", 3010, walker)
	s.wait(lookTime)
	s.shows("bob's first eye is a state that came later", "far", "-", "all")
}

// TestRules changes what interests say, and who has them.
func TestRules(t *testing.T) {
	s := newSightTest(t)
	s.say(sees("alice", `[0,0,0]`))
	s.put("npc", 200, walker)
	s.wait(lookTime)
	s.shows("by the named interest", "npc", "4/5/2", "-")
	s.say(`{"op":"interest","name":"walker","at":"pos","bands":[{"within":1000,"rate":2}]}`)
	s.wait(lookTime)
	s.shows("which changes, to fewer bands", "npc", "1/2/1", "-")
	s.say(`{"op":"interest","name":"walker","at":"pos","bands":[{"within":50}]}`)
	s.wait(lookTime)
	s.shows("which reaches less far", "npc", "asleep", "-")
	s.say(`{"op":"interest","name":"walker","at":"pos","bands":[{"within":50}],"beyond":"unlink"}`)
	s.shows("which unlinks", "npc", "-", "-")
	s.put("npc", 200, `,"interest":{"at":"pos","bands":[{"within":150},{"within":250}]}`)
	s.wait(lookTime)
	s.shows("by an interest of its own, which only weighs less", "npc", "1/0/2", "-")
	s.put("npc", 200, `,"lod":[{"clients":["alice"],"precision":9}]`)
	s.wait(lookTime)
	s.shows("what it says about a client replaces the band, but for the weight", "npc", "9/0/2", "-")
	s.put("npc", 200, `,"lod":[]`+walker)
	s.put("npc", 200, `,"interest":null`)
	s.shows("without interest", "npc", "all", "all")
	for _, x := range []float64{10, 5000} {
		s.move("npc", x)
		s.wait(lookTime)
	}
	s.shows("wherever it is", "npc", "all", "all")
	s.put("npc", 200, walker)
	s.wait(lookTime)
	s.shows("with one again", "npc", "-", "-")
	s.say(`{"op":"interest","name":"walker","at":"pos","bands":[{"within":100},{"within":300}]}`)
	s.wait(lookTime)
	s.shows("which reaches it", "npc", "1/0/2", "-")
	s.put("npc", 200, `,"audience":{"clients":["bob"]}`)
	s.wait(lookTime)
	s.shows("the audience is another", "npc", "-", "-")
	s.say(sees("bob", `[0,0,0]`))
	s.wait(0)
	s.shows("of which bob is, who sees", "npc", "-", "1/0/2")
}

// TestUnknownRule: a state whose interest the edge does not have is seen by no client, and appears with it.
func TestUnknownRule(t *testing.T) {
	s := newSightTest(t)
	s.put("npc", 10, walker)
	s.say(sees("alice", `[0,0,0]`))
	s.wait(lookTime)
	says := s.spaces.Replica("arena").Interest("walker")
	sp := s.session.space
	sp.Interest("walker", nil)
	s.shows("the interest is lost", "npc", "asleep", "-")
	sp.Interest("walker", says)
	s.wait(lookTime)
	s.shows("it is back", "npc", "all", "-")
}

// TestNearWeighsMore: the weight of a level is the priority of the state by the number of the band.
func TestNearWeighsMore(t *testing.T) {
	s := newSightTest(t)
	s.put("npc", 200, walker)
	s.say(sees("alice", `[0,0,0]`), sees("bob", `[650,0,0]`))
	s.wait(lookTime)
	s.shows("in two bands", "npc", "4/5/2", "1/1/3")
	for _, l := range sourcesOf(s.session.space.replica.ByKey("npc")).levels {
		if want := 6 / float32(l.divisor); l.source.Weight() != want {
			t.Errorf("the level of band %d weighs %v, want %v", l.divisor, l.source.Weight(), want)
		}
	}
}

// TestSleepKeepsTheLink: one object crosses the outermost border 10,000 times, and costs a LinkId.
func TestSleepKeepsTheLink(t *testing.T) {
	s := newSightTest(t)
	if used := s.cross(10_000, walker); used > 1 {
		t.Errorf("%d LinkIds are used up, want one", used)
	}
}

// TestUnlinkLasts: with unlink it costs one each time it comes, and after 60,000 crossings the session has
// more than a tenth left.
func TestUnlinkLasts(t *testing.T) {
	s := newSightTest(t)
	if used := s.cross(60_000, `,"interest":{"at":"pos","bands":[{"within":100},{"within":600}],"beyond":"unlink"}`); used != 30_000 {
		t.Errorf("%d LinkIds are used up, want 30,000", used)
	}
	if few, _ := s.spaces.Endpoint.LinkIDs(s.conn); few || s.spaces.counts.LinkIDsFew > 0 {
		t.Error("the session is to be recycled")
	}
}

// cross lets an object cross the outermost border, and returns how many LinkIds that took.
func (s *sightTest) cross(times int, interest string) (used int) {
	s.put("npc", 1000, interest)
	s.say(sees("alice", `[0,0,0]`))
	s.wait(lookTime)
	before := s.spaces.Endpoint.Survey(s.now, s.conn).IDsLeft
	for i := range times {
		s.place("npc", [2]float64{500, 1000}[i%2])
		s.wait(lookTime)
		if linked := s.shown(s.session, "npc"); (linked == "-" || linked == "asleep") != (i%2 == 1) {
			s.Fatalf("after crossing %d the client has %s", i, linked)
		}
	}
	return before - s.spaces.Endpoint.Survey(s.now, s.conn).IDsLeft
}

// place changes where a state is in the replica alone.
func (s *sightTest) place(key string, x float64) {
	st, mask := s.session.space.replica.ByKey(key), netstate.NewMask(2)
	mask.Set(1)
	st.Values.Set(1, places(x)[0])
	s.session.space.Changed(st, mask)
}

// places returns encoded places at x.
func places(x ...float64) (all [][]byte) {
	for _, v := range x {
		all = append(all, append(binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v))), make([]byte, 8)...))
	}
	return all
}

// TestMovesAllocateNothing moves an object from cell to cell, and an eye with it.
func TestMovesAllocateNothing(t *testing.T) {
	s := newSightTest(t)
	s.put("npc", 0, walker)
	s.say(sees("alice", `"npc"`))
	s.wait(lookTime)
	sp := s.session.space
	st := sp.replica.ByKey("npc")
	place, mask, i := places(0, 5000, 10000), netstate.NewMask(2), 0
	mask.Set(1)
	if n := testing.AllocsPerRun(100, func() {
		i++
		st.Values.Set(1, place[i%3])
		sp.Changed(st, mask)
	}); n > 0 {
		t.Errorf("%v allocations for a move, want none", n)
	}
}

// TestResumedSight: a session that comes from another edge has the links there that are in its bands, whatever those
// were bound to.
func TestResumedSight(t *testing.T) {
	s := newSightTest(t)
	unlink := `,"interest":{"at":"pos","bands":[{"within":100},{"within":600,"rate":1}],"beyond":"unlink"}`
	s.put("near", 10, walker)
	s.put("middle", 250, walker)
	s.put("far", 2000, walker)
	s.put("secret", 200, unlink)
	s.put("hidden", 2000, unlink)
	s.put("rock", 2000, "")
	s.store.Join("carol", "o")
	s.say(sees("carol", `[0,0,0]`))
	claims := newClaims()
	claims.Client = "carol"
	carol := s.spaces.NewSession(SessionConfig{ID: "o", Claims: claims, Began: start})
	conn := s.spaces.Endpoint.LogIn(start, netip.MustParseAddrPort("192.0.2.3:1"), nil, discard{})
	ids := make(map[string]dnp.LinkInfo)
	for st := range s.spaces.Replica("arena").All() {
		if err := conn.Link(source(st), true); err != nil {
			t.Fatal(err)
		}
		ids[st.Desc.Key], _ = conn.LinkOf(source(st))
	}
	replica := s.spaces.Replica("arena")
	replica.Reconnected(s.now)
	carol.Resume(s.now, conn, 0, command.Progress{})
	carol.space.Described(replica.ByKey("secret"))
	s.wait(lookTime)
	for key := range ids {
		if got := s.shown(carol, key); got != "all" {
			t.Errorf("before the replica is complete, carol is shown %s of %s, want that nothing is changed", got, key)
		}
	}
	s.replicate()
	s.wait(0)
	for key, want := range map[string]string{"near": "all", "middle": "4/5/2", "far": "asleep", "secret": "1/1/2", "hidden": "-", "rock": "all"} {
		if got := s.shown(carol, key); got != want {
			t.Errorf("carol is shown %s of %s, want %s", got, key, want)
		}
		if link, src, _ := linkTo(conn, replica.ByKey(key)); src != nil && link.ID != ids[key].ID {
			t.Errorf("%s was linked again", key)
		}
	}
}

// TestRoomForTheNear: a client that has as many links as it may gives up sleeping ones.
func TestRoomForTheNear(t *testing.T) {
	s := newSightTest(t)
	endpoint, err := dnp.New(dnp.Config{LinksMax: 4})
	if err != nil {
		t.Fatal(err)
	}
	s.spaces = New(Config{Host: s.host, Endpoint: endpoint, Shards: 1, Linger: time.Hour})
	s.conn = endpoint.LogIn(start, netip.MustParseAddrPort("192.0.2.1:1"), nil, discard{})
	s.session = s.spaces.NewSession(SessionConfig{ID: "m", Claims: newClaims(), Began: start})
	s.begin()
	for i := range 20 {
		s.put(fmt.Sprintf("npc.%d", i), float64(1000*i), walker)
	}
	s.say(sees("alice", `[0,0,0]`))
	s.replicate()
	for i := range 20 {
		s.say(sees("alice", fmt.Sprintf(`[%d,0,0]`, 1000*i)))
		s.wait(lookTime)
		if got := s.shown(s.session, fmt.Sprintf("npc.%d", i)); got != "all" {
			t.Errorf("alice is shown %s of the state beside her, want all", got)
		}
	}
	if s.spaces.counts.LinksRefused > 0 || endpoint.Stats().Silent != 3 {
		t.Errorf("%d links are refused, %d sleep; want none and 3", s.spaces.counts.LinksRefused, endpoint.Stats().Silent)
	}
}
