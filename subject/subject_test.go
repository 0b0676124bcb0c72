package subject

import (
	"strings"
	"testing"
)

func TestSubjects(t *testing.T) {
	var s Names
	for got, want := range map[string]string{
		s.Publish("demo", ""):            "dnp.v1.publish.demo",
		s.Publish("demo", "a.b"):         "dnp.v1.publish.demo.a.b",
		s.PublishAll():                   "dnp.v1.publish.>",
		s.ShardPublish(7, "demo", ""):    "dnp.v1.shard.7.publish.demo",
		s.ShardPublish(7, "demo", "a.b"): "dnp.v1.shard.7.publish.demo.a.b",
		s.ShardPublishAll(7):             "dnp.v1.shard.7.publish.>",
		s.Get("demo", ""):                "dnp.v1.get.demo",
		s.GetAll():                       "dnp.v1.get.>",
		s.ShardGet(7, "demo", "a"):       "dnp.v1.shard.7.get.demo.a",
		s.ShardGetAll(7):                 "dnp.v1.shard.7.get.>",
		s.Live("demo"):                   "dnp.v1.live.demo",
		s.Head(7):                        "dnp.v1.shard.7.head",
		s.HeadAll():                      "dnp.v1.shard.*.head",
		s.Repair(7):                      "dnp.v1.shard.7.repair",
		s.Write(7):                       "dnp.v1.shard.7.write",
		s.Event("demo"):                  "dnp.v1.event.demo",
		s.From("demo", "c1"):             "dnp.v1.from.demo.c1",
		s.To("demo", "c1"):               "dnp.v1.to.demo.c1",
		s.ToAll("demo"):                  "dnp.v1.toall.demo",
		s.Who("demo"):                    "dnp.v1.who.demo",
		s.Spaces():                       "dnp.v1.spaces",
		s.Nodes():                        "dnp.v1.nodes",
		s.Clients("demo"):                "dnp.v1.clients.demo",
		s.Why("*"):                       "dnp.v1.why.*",
		s.Auth():                         "dnp.v1.auth",
		s.Probe():                        "dnp.v1.publish._probe-f9q8",

		Names{Prefix: "game.x"}.Live("demo"): "game.x.live.demo",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for reply, want := range map[string]bool{
		"_INBOX.x.1": true, "_INBOX.dnp.relay.x": true, "game.replies.7": true, "dnp.v1": true, "dnp.v10.x": true,
		"dnp.v1.store.3.own": false, "dnp.v1.live.demo": false, "$JS.API.STREAM.INFO.DNP_LOG_0": false, "$SYS.x": false,
	} {
		if got := s.MayAnswer(reply); got != want {
			t.Errorf("a node may answer on %s: %v, want %v", reply, got, want)
		}
	}
}

func TestMappings(t *testing.T) {
	want := []Mapping{
		{"p.publish.*", "p.shard.{{partition(64,1)}}.publish.{{wildcard(1)}}"},
		{"p.publish.*.>", "p.shard.{{partition(64,1)}}.publish.{{wildcard(1)}}.>"},
		{"p.get.*", "p.shard.{{partition(64,1)}}.get.{{wildcard(1)}}"},
		{"p.get.*.>", "p.shard.{{partition(64,1)}}.get.{{wildcard(1)}}.>"},
	}
	for i, m := range (Names{Prefix: "p"}).Mappings(64) {
		if m != want[i] {
			t.Errorf("got %+v, want %+v", m, want[i])
		}
	}
}

func TestParseSubjects(t *testing.T) {
	var s Names
	long := strings.Repeat("x", 64)
	for subject, want := range map[string]Address{
		"dnp.v1.publish.demo":                         {Shard: -1, Space: "demo"},
		"dnp.v1.publish.demo.a.b":                     {Shard: -1, Space: "demo", Key: "a.b"},
		"dnp.v1.shard.63.publish.demo":                {Shard: 63, Space: "demo"},
		"dnp.v1.shard.0.publish." + long + "." + long: {Shard: 0, Space: long, Key: long},
		"dnp.v1.shard.1.publish.demo.1.2.3.4.5.6.7.8": {Shard: 1, Space: "demo", Key: "1.2.3.4.5.6.7.8"},
		"dnp.v1.shard.9.publish._probe-n":             {Shard: 9, Space: "_probe-n"},
	} {
		if got, ok := s.ParsePublish(subject); !ok || got != want {
			t.Errorf("%s: got %+v, %v", subject, got, ok)
		}
		get := strings.Replace(subject, "publish", "get", 1)
		if got, ok := s.ParseGet(get); !ok || got != want {
			t.Errorf("%s: got %+v, %v", get, got, ok)
		}
	}
	for _, subject := range []string{
		"", "dnp.v1.", "dnp.v1.publish", "dnp.v1.publish.", "dnp.v1.publish.a.", "dnp.v1.publish.a..b",
		"dnp.v1.publish.a b", "dnp.v1.publish." + long + "x", "dnp.v1.publish.a." + long + "x",
		"dnp.v1.publish.a.1.2.3.4.5.6.7.8.9", "dnp.v2.publish.a", "dnp.v1.shard.publish.a",
		"dnp.v1.shard.-1.publish.a", "dnp.v1.shard.99999.publish.a", "dnp.v1.shard.1.get.a",
		"dnp.v1.publishx.a", "x.dnp.v1.publish.a",
	} {
		if got, ok := s.ParsePublish(subject); ok {
			t.Errorf("%q: got %+v", subject, got)
		}
	}
	if n, ok := s.ParseShard("dnp.v1.shard.17.head"); !ok || n != 17 {
		t.Errorf("head: %d, %v", n, ok)
	}
	if _, ok := s.ParseShard("dnp.v1.shard.x.head"); ok {
		t.Error("ParseShard accepted a shard that is not a number")
	}
	if space, client, ok := s.ParseFrom(s.From("demo", "c1")); !ok || space != "demo" || client != "c1" {
		t.Errorf("from: %q %q %v", space, client, ok)
	}
	for _, subject := range []string{"dnp.v1.from.demo", "dnp.v1.from.demo.a.b", "dnp.v1.fromall.demo.c", "dnp.v1.from..c", "dnp.v1.to.demo.c1"} {
		if _, _, ok := s.ParseFrom(subject); ok {
			t.Errorf("%q was parsed, but is not the subject of a client", subject)
		}
	}
}

func TestStoreSubjects(t *testing.T) {
	s := Names{}
	for _, c := range []struct{ got, want string }{
		{s.StoreAll(7), "dnp.v1.store.7.>"},
		{s.StoreOwn(7), "dnp.v1.store.7.own"},
		{s.StoreOwnAll(), "dnp.v1.store.*.own"},
		{s.StoreLease(7, "relay-1"), "dnp.v1.store.7.relay.relay-1"},
		{s.StoreKeyframe(7, "demo", 12), "dnp.v1.store.7.k.demo.12"},
		{s.StoreKeyframeAll(7), "dnp.v1.store.7.k.>"},
		{s.StoreInput(s.StoreKeyframe(7, "demo", 12), "SECRET"), "dnp.v1.store.7.SECRET.k.demo.12"},
		{s.StoreInput(s.StoreAll(7), "SECRET"), "dnp.v1.store.7.SECRET.>"},
		{s.StoreInputs("SECRET").From, "dnp.v1.store.*.SECRET.>"},
		{s.StoreInputs("SECRET").To, "dnp.v1.store.{{wildcard(1)}}.>"},
		{s.StoreAllShards(), "dnp.v1.store.>"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if space, number, ok := s.ParseStoreKeyframe("dnp.v1.store.7.k.demo.12"); !ok || space != "demo" || number != 12 {
		t.Errorf("ParseStoreKeyframe: %q, %d, %v", space, number, ok)
	}
	if n, rest, ok := s.ParseStore(s.StoreLease(7, "r1")); !ok || n != 7 || rest != "relay.r1" {
		t.Errorf("ParseStore: %d, %q, %v", n, rest, ok)
	}
	for _, bad := range []string{
		"dnp.v1.store.7.own", "dnp.v1.store.7.k.demo", "dnp.v1.store.7.k.demo.x", "dnp.v1.store.7.k.a b.1", "dnp.v1.store.x.k.demo.1", "dnp.v2.store.7.k.demo.1",
		"dnp.v1.store.7.k.demo.1.2",
	} {
		if _, _, ok := s.ParseStoreKeyframe(bad); ok {
			t.Errorf("ParseStoreKeyframe accepted %q", bad)
		}
	}
}

func TestRelaySubjects(t *testing.T) {
	s := Names{}
	if got, all := s.Relay("r1"), s.RelayAll(); got != "dnp.v1.relay.r1" || all != "dnp.v1.relay.*" {
		t.Errorf("a relay announces itself on %q, all do on %q", got, all)
	}
	if node, ok := s.ParseRelay(s.Relay("r1")); !ok || node != "r1" {
		t.Errorf("ParseRelay: %q, %v", node, ok)
	}
	for _, bad := range []string{"dnp.v1.edge.r1", "dnp.v2.relay.r1", "dnp.v1.relays.r1"} {
		if node, ok := s.ParseRelay(bad); ok {
			t.Errorf("ParseRelay takes %q for that of %q", bad, node)
		}
	}
}

func TestValid(t *testing.T) {
	for _, c := range []struct {
		subject        string
		plain, pattern bool
	}{
		{"a", true, true}, {"a.b-c.D_1", true, true}, {"a.é", true, true}, {"a.b>", true, true},
		{"*", false, true}, {"a.*.c", false, true}, {"a.>", false, true}, {">", false, true},
		{"", false, false}, {".a", false, false}, {"a.", false, false}, {"a..b", false, false},
		{"a b", false, false}, {"a.\tb", false, false}, {"a\n", false, false}, {"a.>.b", false, false},
	} {
		if Valid(c.subject, false) != c.plain || Valid(c.subject, true) != c.pattern {
			t.Errorf("%q: got %v, %v; want %v as a subject and %v as a pattern", c.subject, Valid(c.subject, false), Valid(c.subject, true), c.plain, c.pattern)
		}
	}
}
