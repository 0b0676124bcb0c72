package fanout

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/interest"
)

// tellTime is how long a change of sight may wait until game servers hear of it: a look, and the collection.
const tellTime = lookTime + sightingsInterval + lookStep

const asking = `,"interest":{"at":"pos","bands":[{"within":100},{"within":600,"rate":1}],"events":true}`

// heard returns the events about what clients see since the last call, as "sees alice: a b".
func (s *sightTest) heard() (all []string) {
	s.Helper()
	for _, m := range s.host.messages {
		var ev struct {
			Type, Client, Session string
			Keys                  []string
			Anew                  bool
		}
		if err := json.Unmarshal(m.Data, &ev); err != nil || ev.Type != "sees" && ev.Type != "unsees" {
			continue
		}
		if ev.Session == "" || len(ev.Keys) == 0 && !ev.Anew {
			s.Errorf("%s lacks something", m.Data)
		}
		text := strings.TrimSpace(fmt.Sprintf("%s %s: %s", ev.Type, ev.Client, strings.Join(ev.Keys, " ")))
		if ev.Anew {
			text += " anew"
		}
		all = append(all, text)
	}
	s.host.messages = nil
	return all
}

// tells wants exactly these events, in any order, after the worker took turns for some time.
func (s *sightTest) tells(why string, d time.Duration, want ...string) {
	s.Helper()
	s.wait(d)
	got := s.heard()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.Errorf("%s: the events are %q, want %q", why, got, want)
	}
}

// TestSightings has game servers hear of an object that walks past two clients.
func TestSightings(t *testing.T) {
	s := newSightTest(t)
	s.put("rock", 0, "")
	s.put("tree", 0, walker)
	s.put("npc", 1000, asking)
	s.put("dog", 1000, strings.Replace(asking, `"events"`, `"beyond":"unlink","events"`, 1))
	s.say(sees("alice", `[0,0,0]`), sees("bob", `[450,0,0]`))
	s.tells("bob has both in a band; of the others, nothing asks for events", tellTime, "sees bob: dog npc")
	if s.session.watched != nil {
		t.Error("a session that sees no state that asks costs memory")
	}
	s.move("npc", 500)
	s.tells("npc comes near alice", tellTime, "sees alice: npc")
	s.move("npc", 50)
	s.tells("another band of the same interest is no news", tellTime)
	s.move("npc", 590)
	s.tells("nor is the way back", tellTime)
	s.move("npc", 640)
	s.tells("a state is in sight until it is a tenth outside", tellTime)
	s.move("npc", 670)
	s.move("dog", 2000)
	s.tells("npc leaves alice, and dog, which unlinks, bob", tellTime, "unsees alice: npc", "unsees bob: dog")
	s.move("npc", 640)
	s.tells("it is out of sight until it is inside", tellTime)
	s.say(sees("bob", `null`))
	s.tells("bob closes his eye", tellTime, "unsees bob: npc")
	if s.bob.watched == nil || len(s.bob.watched.byState) > 0 {
		t.Error("a session remembers states that are out of its sight")
	}
	s.say(sees("bob", `[450,0,0]`))
	s.tells("and opens it", tellTime, "sees bob: npc")
	s.say(`{"op":"remove","key":"npc"}`)
	s.tells("the publisher knows that it removed the state", tellTime)
	s.put("npc", 500, asking)
	s.tells("and hears who sees the next one", tellTime, "sees alice: npc", "sees bob: npc")
	s.say(sees("alice", `null`), sees("bob", `null`))
	s.tells("the worker wakes up for the news, although it has no eyes to look with", tellTime, "unsees alice: npc", "unsees bob: npc")
	if got := s.spaces.counts.Sightings; got != 11 {
		t.Errorf("%d sightings are counted, want 11", got)
	}
}

// TestLinksOfInterests: game servers hear of the links of a state with an interest only if it asks for events, but always
// of those that the client does not have, or perhaps not.
func TestLinksOfInterests(t *testing.T) {
	s := newSightTest(t)
	s.say(sees("alice", `[0,0,0]`))
	s.put("rock", 0, "")
	s.put("tree", 0, walker)
	s.put("npc", 0, asking)
	s.wait(lookTime)
	tells := func(why, key string, kind dnp.EventKind, want ...string) {
		t.Helper()
		s.host.messages = nil
		s.session.Handle(s.now, &dnp.Event{Kind: kind, Link: 0x8000, Source: source(s.session.space.replica.ByKey(key))})
		var got []string
		for _, m := range s.host.messages {
			var ev struct{ Type, Key string }
			if err := json.Unmarshal(m.Data, &ev); err != nil || ev.Key != key {
				t.Fatalf("%s: %s is sent about %s (%v)", why, m.Data, key, err)
			}
			got = append(got, ev.Type)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the events are %q, want %q", why, got, want)
		}
	}
	tells("a state without an interest", "rock", dnp.EventLinkUp, "linked")
	tells("an interest that does not ask", "tree", dnp.EventLinkUp)
	tells("an interest that asks", "npc", dnp.EventLinkUp, "linked")
	tells("the client says nothing", "tree", dnp.EventLinkPresumed, "presumed")
	tells("the client refuses", "tree", dnp.EventLinkDown, "rejected")
	s.put("npc", 0, walker)
	tells("it asks no more", "npc", dnp.EventLinkUp)
	s.put("npc", 0, `,"interest":null`)
	tells("it is gone", "npc", dnp.EventLinkUp, "linked")
}

// TestSightingsCollect: what comes and goes within an interval is not told, and changes of one client are told together.
func TestSightingsCollect(t *testing.T) {
	s := newSightTest(t)
	for i := range 3 {
		s.put(fmt.Sprintf("npc.%d", i), 1000, asking)
	}
	s.put("player", 0, "")
	s.say(sees("alice", `"player#pos"`))
	s.wait(time.Second)
	s.move("player", 1000) // a jump, at which the worker looks at once
	s.wait(0)
	s.shows("the player is there", "npc.0", "all", "-")
	s.tells("events collect", sightingsInterval-lookStep)
	s.move("player", 0)
	s.tells("the player is back in time", tellTime)
	s.move("player", 1000)
	s.wait(0)
	s.tells("all that came into sight is in one event", tellTime, "sees alice: npc.0 npc.1 npc.2")
	s.move("player", 0)
	s.wait(0)
	s.move("npc.1", 10)
	s.tells("and what went", tellTime, "unsees alice: npc.0 npc.2")
	s.move("npc.1", 2000)
	s.wait(lookTime)
	s.say(`{"op":"remove","key":"npc.1"}`)
	s.tells("a state ended that was about to be told of", tellTime)
}

// TestSightingsFollowRules: the audience, and what an interest asks for, decide as well.
func TestSightingsFollowRules(t *testing.T) {
	s := newSightTest(t)
	s.say(sees("alice", `[0,0,0]`), sees("bob", `[0,0,0]`))
	s.put("npc", 10, `,"audience":{"groups":["red"]}`+asking)
	s.tells("neither client belongs to the audience", tellTime)
	s.say(`{"op":"group","client":"bob","join":["red"]}`)
	s.tells("bob joins it", tellTime, "sees bob: npc")
	s.say(`{"op":"group","client":"bob","leave":["red"]}`)
	s.tells("bob leaves it", tellTime, "unsees bob: npc")
	s.say(`{"op":"audience","key":"npc","audience":{"clients":["alice"]}}`)
	s.tells("alice is named", tellTime, "sees alice: npc")
	s.say(`{"op":"audience","key":"npc","audience":{"clients":["bob"]}}`)
	s.tells("bob is instead", tellTime, "unsees alice: npc", "sees bob: npc")
	s.put("npc", 10, strings.Replace(asking, "100", "90", 1))
	s.tells("another interest leaves the state in sight", tellTime)
	s.put("npc", 10, walker)
	s.tells("the interest asks no more", tellTime)
	s.move("npc", 5000)
	s.tells("so nothing is told", tellTime)
	s.move("npc", 10)
	s.say(`{"op":"interest","name":"walker","at":"pos","bands":[{"within":50}],"events":true}`)
	s.tells("it asks again", tellTime, "sees bob: npc")
	says := s.spaces.Replica("arena").Interest("walker")
	s.session.space.Interest("walker", nil)
	s.tells("its record is lost", tellTime, "unsees bob: npc")
	s.session.space.Interest("walker", says)
	s.tells("and is back", tellTime, "sees bob: npc")
	s.put("npc", 10, `,"interest":null`)
	s.tells("without an interest, all see the state", tellTime)
	if s.bob.watched != nil && len(s.bob.watched.byState) > 0 {
		t.Error("a session remembers a state that does not ask")
	}
}

// TestSightingsBounds: a client that comes into a crowd is told of in parts, and a crowd of clients one after the other.
func TestSightingsBounds(t *testing.T) {
	s := newSightTest(t)
	for i := range sightingsKeysMax + 3 {
		s.put(fmt.Sprintf("npc.%03d", i), 10, asking)
	}
	s.say(sees("alice", `[0,0,0]`))
	s.wait(tellTime)
	if got := s.heard(); len(got) != 1 || strings.Count(got[0], "npc.") != sightingsKeysMax || s.spaces.counts.SightingsWaits != 1 {
		t.Fatalf("%d events come first, and news waited %d times, want one event with %d keys", len(got), s.spaces.counts.SightingsWaits, sightingsKeysMax)
	}
	s.wait(tellTime)
	if got := s.heard(); len(got) != 1 || strings.Count(got[0], "npc.") != 3 {
		t.Fatalf("the rest comes as %q", got)
	}
	for i := range sightingsKeysMax {
		s.say(fmt.Sprintf(`{"op":"remove","key":"npc.%03d"}`, i))
	}
	before := s.spaces.counts.SightingsWaits
	for i := range sightingsMax + 2 {
		claims := newClaims()
		claims.Client = fmt.Sprintf("c-%d", i)
		s.store.Join(claims.Client, claims.Client)
		s.say(sees(claims.Client, `[0,0,0]`))
		session := s.spaces.NewSession(SessionConfig{ID: claims.Client, Claims: claims, Began: start})
		session.Begin(s.now, s.spaces.Endpoint.LogIn(start, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1), nil, discard{}))
		session.release()
	}
	s.wait(sightingsInterval + lookStep)
	first := s.heard()
	if waits := s.spaces.counts.SightingsWaits - before; len(first) != sightingsMax || waits != 2 {
		t.Errorf("%d clients are told of in an interval, %d wait; want %d and 2", len(first), waits, sightingsMax)
	}
	s.wait(time.Second)
	if rest := s.heard(); len(rest) != 2 {
		t.Errorf("then come %q, want those of 2 clients", rest)
	}
	for i := range sightingsMax + 2 {
		s.say(sees(fmt.Sprintf("c-%d", i), `null`))
	}
	s.say(sees("alice", `null`))
	s.wait(sightingsInterval + lookStep)
	first = s.heard()
	if d := s.next.Sub(s.now); d > sightingsInterval {
		t.Errorf("news wait, and the worker wants to be called in %v", d)
	}
	s.wait(time.Second)
	if rest := s.heard(); len(first) != sightingsMax || len(rest) != 3 {
		t.Errorf("when all close their eyes, %d events come and then %d, want %d and 3", len(first), len(rest), sightingsMax)
	}
}

// TestSightingsAreShort: whatever the keys, no event is above 8 KiB.
func TestSightingsAreShort(t *testing.T) {
	s := newSightTest(t)
	for i := range 40 {
		s.put(strings.Repeat(strings.Repeat("k", 62)+".", 3)+fmt.Sprintf("%064d", i), 10, asking)
	}
	s.say(sees("alice", `[0,0,0]`))
	s.wait(2 * time.Second)
	longest := 0
	for _, m := range s.host.messages {
		longest = max(longest, len(m.Data))
	}
	keys := 0
	for _, text := range s.heard() {
		keys += len(strings.Fields(text)) - 2
	}
	if longest > 8<<10 || keys != 40 {
		t.Errorf("the longest event has %d bytes, and there are %d keys, want 8,192 at most and 40", longest, keys)
	}
}

// TestSightingsOfRestored: what another edge told of a session is told anew, even if the session sees nothing.
func TestSightingsOfRestored(t *testing.T) {
	s := newSightTest(t)
	resume := func(client string, i byte) *Session {
		s.store.Join(client, client)
		s.say(sees(client, `[0,0,0]`))
		claims := newClaims()
		claims.Client = client
		session := s.spaces.NewSession(SessionConfig{ID: client, Claims: claims, Began: start})
		session.Resume(s.now, s.spaces.Endpoint.LogIn(start, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 1), nil, discard{}), 0, command.Progress{})
		session.release()
		return session
	}
	s.put("tree", 10, walker)
	resume("carol", 1)
	s.tells("no state asks", tellTime)
	s.put("npc", 10, asking)
	s.put("far", 2000, asking)
	resume("dave", 2)
	s.tells("carol was here before, and dave was not", tellTime, "sees carol: npc", "sees dave: npc anew")
	s.move("npc", 2000)
	s.tells("later events are as others", tellTime, "unsees carol: npc", "unsees dave: npc")
	erin := resume("erin", 3)
	s.tells("erin sees nothing any more", tellTime, "sees erin: anew")
	s.move("npc", 10)
	s.wait(lookTime)
	s.spaces.byName["arena"].leave(s.now, erin)
	s.tells("erin left before it was told", tellTime, "sees carol: npc", "sees dave: npc")
}

// TestSightingsModel has three clients and ten states do what they like. Who replays the events must come to what the
// worker has, whenever nothing waits.
func TestSightingsModel(t *testing.T) {
	s := newSightTest(t)
	rng := rand.New(rand.NewPCG(7, 7))
	audiences := []string{`{"all":true}`, `{"clients":["alice"]}`, `{"groups":["red"]}`}
	interests := []string{asking, asking, walker, `,"interest":null`}
	key := func() string { return fmt.Sprintf("npc.%d", rng.IntN(10)) }
	told := map[string]bool{} // by client and key
	removed := func(key string) {
		for _, client := range []string{"alice", "bob"} {
			delete(told, client+" "+key)
		}
	}
	for step := range 3000 {
		client := []string{"alice", "bob"}[rng.IntN(2)]
		switch k := key(); rng.IntN(8) {
		case 0:
			s.put(k, float64(rng.IntN(3000)), `,"audience":`+audiences[rng.IntN(3)]+interests[rng.IntN(4)])
		case 1:
			if s.spaces.Replica("arena").ByKey(k) != nil {
				s.say(fmt.Sprintf(`{"op":"remove","key":%q}`, k))
			}
		case 2:
			s.say(sees(client, fmt.Sprintf(`[%d,0,0]`, rng.IntN(3000))))
		case 3:
			s.say(fmt.Sprintf(`{"op":"group","client":%q,%q:["red"]}`, client, []string{"join", "leave"}[rng.IntN(2)]))
		default:
			if s.spaces.Replica("arena").ByKey(k) != nil {
				s.move(k, float64(rng.IntN(3000)))
			}
		}
		s.wait(time.Duration(rng.IntN(300)) * time.Millisecond)
		if step%10 == 0 {
			s.wait(tellTime)
		}
		for _, text := range s.heard() {
			what, keys, _ := strings.Cut(text, ": ")
			kind, client, _ := strings.Cut(what, " ")
			for _, key := range strings.Fields(keys) {
				if kind == "sees" {
					told[client+" "+key] = true
				} else if !told[client+" "+key] {
					t.Fatalf("step %d: %s: it was not told to be in sight", step, text)
				} else {
					delete(told, client+" "+key)
				}
			}
		}
		s.forgetSilent(removed)
		if step%10 == 0 {
			if want := s.inSight(); !maps.Equal(told, want) {
				t.Fatalf("step %d: the events say %v, want %v", step, told, want)
			}
		}
	}
}

// forgetSilent calls removed for states about which nothing is told: those that ended, or whose interest does not ask.
func (s *sightTest) forgetSilent(removed func(key string)) {
	for i := range 10 {
		key := fmt.Sprintf("npc.%d", i)
		if st := s.spaces.Replica("arena").ByKey(key); st == nil || !sourcesOf(st).rule.asks() {
			removed(key)
		}
	}
}

// inSight returns what clients see of states that ask for events, by client and key.
func (s *sightTest) inSight() map[string]bool {
	all := map[string]bool{}
	for st := range s.spaces.Replica("arena").All() {
		for _, session := range []*Session{s.session, s.bob} {
			sp := session.space
			if sourcesOf(st).rule.asks() && sp.includes(st, session) && sp.near.band(session, st) != interest.Beyond {
				all[session.Claims.Client+" "+st.Desc.Key] = true
			}
		}
	}
	return all
}
