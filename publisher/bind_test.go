package publisher_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/publisher"
)

// A bulb is a lamp, as a struct.
type bulb struct {
	On  bool  `dnp:"on"`
	Hue uint8 `dnp:"hue"`
}

// TestBind requires that a struct and its state have the same values, whoever changes them, and whatever
// relay holds the space.
func TestBind(t *testing.T) {
	s := newScene(t, publisher.Config{Retry: time.Millisecond, Probe: 10 * time.Millisecond})
	s.hold(1)
	lamp, err := publisher.Bind(s.space, publisher.Put{Key: "lamp", Access: publisher.Access{All: true}}, bulb{Hue: 1})
	must(err)
	s.holds("the first values", map[string]string{"lamp": "on=0 hue=1 "})
	must(lamp.Set(bulb{On: true, Hue: 2}))
	must(lamp.Update(func(b *bulb) { b.Hue++ }))
	if got := lamp.Get(); got != (bulb{true, 3}) {
		t.Errorf("the values are %+v", got)
	}
	s.holds("Set and Update", map[string]string{"lamp": "on=1 hue=3 "})
	c := s.client()
	s.until(c, "the lamp is linked", func(c *dnptest.Client) bool { l := c.LinkNamed("lamp"); return l != nil && l.Phase == dnptest.LinkIsUp })
	must(c.Write(s.ctx, "lamp", 1, []byte{7}))
	s.holds("a client writes", map[string]string{"lamp": "on=1 hue=7 "})
	for lamp.Get() != (bulb{true, 7}) {
		if s.ctx.Err() != nil {
			t.Fatalf("the values are %+v, want what the client wrote", lamp.Get())
		}
	}
	must(lamp.Update(func(b *bulb) { b.On = false }))
	s.holds("Update leaves what it does not change to the client", map[string]string{"lamp": "on=0 hue=7 "})
	if st, ok := s.space.State("lamp"); !ok || st.Value("on") != uint8(0) || st.Value("hue") != uint8(7) || st.Values[0].Client || !st.Values[1].Client {
		t.Errorf("the copy is %+v, %v", st, ok)
	}
	s.hold(2)
	s.holds("another relay takes over", map[string]string{"lamp": "on=0 hue=7 "})
	s.publish("a set of the same state", set("lamp", "hue", 9))
	if got := lamp.Get(); got != (bulb{false, 9}) {
		t.Errorf("the values are %+v after a Set by key", got)
	}
	s.publish("it is removed", publisher.Remove{Key: "lamp"})
	var problem *publisher.Error
	if err := lamp.Set(bulb{}); !errors.As(err, &problem) || problem.Code != publisher.CodeUnknownState {
		t.Errorf("set of a removed state: %v", err)
	}
	if _, ok := s.space.State("lamp"); ok {
		t.Error("the copy has the removed state")
	}
	if len(s.refused) > 0 {
		t.Errorf("refused %v", s.refused)
	}
}

// TestBindAll has values of every kind of field, which the relay accepts and clients see.
func TestBindAll(t *testing.T) {
	type gun struct {
		Aim   [2]float32 `dnp:"aim,type=vector2f16"`
		Shots uint16     `dnp:"shots"`
	}
	type tank struct {
		HP    float32    `dnp:"hp,precision=0.1,min=0,max=100,rate=5"`
		Pos   [3]float32 `dnp:"pos,type=vector3f16"`
		Level int        `dnp:"level,type=uint8"`
		Name  string     `dnp:"name"`
		Paint []byte     `dnp:"paint"`
		Owner *string    `dnp:"owner,null=none"`
		Gun   gun        `dnp:"gun"`
	}
	s := newScene(t, publisher.Config{})
	s.hold(1)
	owner := "red"
	value := tank{HP: 93.5, Pos: [3]float32{1, 2, 1e-3}, Level: 200, Name: "größer", Paint: []byte{1, 2}, Gun: gun{[2]float32{1, -1}, 5}}
	bound, err := publisher.Bind(s.space, publisher.Put{Key: "tank"}, value)
	must(err)
	s.holds("all values", map[string]string{"tank": `hp=93.5 pos=[1,2,0.001] level=200 name="größer" paint="AQI=" owner=null gun={"aim":[1,-1],"shots":5} `})
	value.Owner, value.Gun.Shots = &owner, 6
	must(bound.Set(value))
	owner = "changed after Set"
	got := bound.Get()
	*got.Owner, got.Paint[0] = "changed after Get", 9
	if got := bound.Get(); *got.Owner != "red" || got.Paint[0] != 1 {
		t.Errorf("the Bound shares memory: %q, %v", *got.Owner, got.Paint)
	}
	must(s.space.Flush(s.ctx))
	s.holds("new values", map[string]string{"tank": `hp=93.5 pos=[1,2,0.001] level=200 name="größer" paint="AQI=" owner="red" gun={"aim":[1,-1],"shots":6} `})
	st, _ := s.space.State("tank")
	for name, want := range map[string]any{"hp": float32(93.5), "pos": [3]float32{1, 2, 1e-3}, "level": uint8(200), "name": "größer", "paint": []byte{1, 2}, "owner": "red",
		"gun": map[string]any{"aim": [2]float32{1, -1}, "shots": uint16(6)}} {
		if got := st.Value(name); !reflect.DeepEqual(got, want) {
			t.Errorf("value %s is %#v, want %#v", name, got, want)
		}
	}
	for why, change := range map[string]func(*tank){
		`value "level": 256 does not fit uint8`: func(v *tank) { v.Level = 256 }, `value "hp": NaN`: func(v *tank) { v.HP = float32(math.NaN()) },
	} {
		if err := bound.Update(func(v *tank) { change(v); v.Name = "lost" }); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %s", err, why)
		}
	}
	if got := bound.Get(); got.Name != "größer" || got.Level != 200 {
		t.Errorf("an error changed values: %+v", got)
	}
	if _, err := publisher.Bind(s.space, publisher.Put{Key: "x"}, struct{ C chan int }{}); err == nil || !strings.Contains(err.Error(), "field C: chan int cannot be a value") {
		t.Errorf("a channel as a value: %v", err)
	}
	again, err := publisher.Bind(s.space, publisher.Put{Key: "tank"}, value)
	must(err)
	if err := bound.Set(value); err == nil {
		t.Error("a Bound whose state was put again does not say so")
	}
	must(again.Set(value))
}

// TestBindDuringOutage sets values while no relay is there. The next relay hears of the newest ones.
func TestBindDuringOutage(t *testing.T) {
	s := newScene(t, publisher.Config{Retry: time.Millisecond, Probe: 10 * time.Millisecond})
	var all []*publisher.Bound[bulb]
	for i := range 50 {
		b, err := publisher.Bind(s.space, publisher.Put{Key: fmt.Sprint("npc", i)}, bulb{})
		must(err)
		all = append(all, b)
	}
	s.hold(1)
	want := map[string]string{}
	for round := range 100 {
		for i, b := range all {
			must(b.Set(bulb{round%2 == 1, uint8(round + i)}))
			want[fmt.Sprint("npc", i)] = fmt.Sprintf("on=%d hue=%d ", round%2, round+i)
		}
		switch round {
		case 30:
			s.unhold()
		case 60:
			s.hold(2)
		}
	}
	must(s.space.Flush(s.ctx))
	s.holds("the newest values", want)
}
