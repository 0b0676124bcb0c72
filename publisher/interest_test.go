package publisher_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/publisher"
	"github.com/nats-io/nats.go"
)

// TestInterest requires that states, named interests and their order survive a relay that has no store.
func TestInterest(t *testing.T) {
	s := newScene(t, publisher.Config{Retry: time.Millisecond, Probe: 10 * time.Millisecond})
	s.hold(1)
	boat := func(key string, x any) publisher.Put {
		return publisher.Put{Key: key, Interest: x, Values: []publisher.Value{{Name: "pos", Type: "vector3f32", Value: []float64{1, 2, 3}}}}
	}
	walker := publisher.Distance{At: "pos", Axes: "xz", Bands: []publisher.Band{{Within: 100}, {Within: 300, Rate: 5, Precision: 4}}}
	s.publish("a name, and states that have it", publisher.Interest{Name: "walker", Distance: walker}, boat("a", "walker"),
		boat("b", &publisher.Distance{At: "0", Bands: []publisher.Band{{Within: 7}}, Unlink: true, Events: true}), boat("c", "walker"))
	s.publish("one that gives it up, and one that says nothing of it", boat("c", ""), boat("a", nil))
	want := []string{`"key":"a",`, `"interest":"walker"`, `"interest":{"at":"0","bands":[{"within":7}],"beyond":"unlink","events":true}`}
	check := func(why string) {
		t.Helper()
		nc, err := nats.Connect(s.nats.URL())
		must(err)
		defer nc.Close()
		m, err := nc.RequestWithContext(s.ctx, "dnp.v1.get.demo", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if strings.Count(string(m.Data), part) != 1 {
				t.Fatalf("%s: the relay holds %s, want %s once", why, m.Data, part)
			}
		}
	}
	check("published")
	for _, c := range []struct {
		op   publisher.Op
		want string
	}{
		{boat("d", 5), "put d: bad_request: interest: int is neither"},
		{boat("d", "nothing"), `put d: bad_request: there is no interest "nothing"`},
		{publisher.Interest{Name: "walker", Distance: publisher.Distance{At: "pos", Bands: []publisher.Band{{Within: -1}}}}, "interest walker: bad_request"},
		{publisher.Interest{Name: "walker"}, "interest walker: bad_request: interest \"walker\" is used by 1 states"},
		{publisher.Eye{Client: "absent", States: []string{"a"}}, "eye absent: unknown_client"},
		{publisher.Eye{Client: "c", Points: [][]float64{{1}}}, "eye c: bad_request"},
	} {
		if _, err := s.space.Publish(s.ctx, c.op); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.op, err, c.want)
		}
	}
	s.publish("the name again, because a refused removal is forgotten", publisher.Interest{Name: "walker", Distance: walker})
	s.hold(2)
	s.holds("the space repeats everything", map[string]string{"a": "pos=[1,2,3] ", "b": "pos=[1,2,3] ", "c": "pos=[1,2,3] "})
	check("repeated")
	s.publish("the state that has it is gone", publisher.Remove{Key: "a"}, publisher.Interest{Name: "walker"})
}
