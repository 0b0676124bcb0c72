package payload

import (
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication"
)

// A publisher exchanges JSON with a store.
type publisher struct {
	*testing.T
	store *replication.Store
	now   time.Time
}

func newPublisher(t *testing.T) *publisher {
	p := &publisher{T: t, store: replication.NewStore(replication.StoreConfig{Space: "demo", Epoch: 7}), now: time.Unix(1000, 0)}
	p.store.Join("c1", "s1")
	p.want(`{"ops":[`+tower+`,{"op":"put","key":"n","values":[{"name":"a","type":"uint8","value":1},{"name":"big","type":"sint64","value":"-9007199254740993"}]}]}`, `"epoch":7`)
	return p
}

// publish returns the answer.
func (p *publisher) publish(body string) string {
	p.Helper()
	in, err := JSON.Parse([]byte(body), "")
	if err != nil {
		return string(JSON.AppendError(nil, err))
	}
	in.Token = 1
	p.now = p.now.Add(time.Second)
	p.store.Publish(p.now, in)
	for _, out := range p.store.Advance(p.now) {
		if out.Kind == replication.OutputAnswer {
			return string(JSON.AppendAnswer(nil, &out.Answer))
		}
	}
	p.Fatalf("%s\ngot no answer", body)
	return ""
}

func (p *publisher) want(body, answer string) {
	p.Helper()
	if got := p.publish(body); !strings.Contains(got, answer) {
		p.Errorf("%s\n got %s\nwant %s", body, got, answer)
	}
}

// get returns all states without the position.
func (p *publisher) get() string {
	l := p.store.List("", 100)
	_, states, _ := strings.Cut(string(JSON.AppendListing(nil, &l, 1<<20)), `"states":`)
	return states
}

func TestStoreRefuses(t *testing.T) {
	p := newPublisher(t)
	before := p.get()
	for body, want := range map[string]string{
		`{"op":"set","key":"tower","values":{"hp":"full"}}`:                                  `"code":"type_mismatch","message":"value \"hp\": want float32, got string","op":0`,
		`{"op":"set","key":"tower","values":{"pos":[1,2]}}`:                                  `"code":"type_mismatch","message":"value \"pos\": want vector3f32 with 3 components, got 2"`,
		`{"op":"set","key":"tower","values":{"hp":null}}`:                                    `"code":"type_mismatch","message":"value \"hp\": want float32, got null`,
		`{"op":"set","key":"tower","values":{"0":[1]}}`:                                      `"code":"type_mismatch","message":"value \"hp\": want float32, got array"`,
		`{"op":"set","key":"tower","values":{"hp":1,"0":2}}`:                                 `"code":"bad_request"`,
		`{"op":"set","key":"tower","values":{"mana":1}}`:                                     `"code":"bad_request"`,
		`{"op":"set","key":"tower","values":{"3":1}}`:                                        `"code":"bad_request"`,
		`{"op":"set","key":"n","values":{"a":256}}`:                                          `"code":"out_of_range","message":"value \"a\": 256 does not fit uint8"`,
		`{"op":"set","key":"n","values":{"a":1.5}}`:                                          `"code":"type_mismatch"`,
		`{"op":"set","key":"tower","values":{"owner":"` + long(1025) + `"}}`:                 `"code":"too_large"`,
		`{"op":"set","key":"keep","values":{"hp":1}}`:                                        `"code":"unknown_state"`,
		`{"op":"remove","key":"keep"}`:                                                       `"code":"unknown_state"`,
		`{"op":"kick","client":"c2"}`:                                                        `"code":"unknown_client"`,
		`{"op":"put","key":"client.c1.1","values":[{"type":"uint8"}]}`:                       `"code":"bad_request"`,
		`{"op":"put","key":"k","message":"` + long(16001) + `","values":[{"type":"uint8"}]}`: `"code":"too_large"`,
		`{"ops":[{"op":"remove","key":"tower"},{"op":"set","key":"n","values":{"a":-1}}]}`:   `"code":"out_of_range","message":"value \"a\": -1 does not fit uint8","op":1`,
		`{"ops":[{"op":"clear"},{"op":"sett","key":"n"}]}`:                                   `"code":"bad_request","message":"unknown op \"sett\": want put, set, remove, audience, group, interest, eye, kick or clear","op":1`,
	} {
		p.want(body, want)
		if after := p.get(); after != before {
			t.Fatalf("%s\nchanged\n%s\ninto\n%s", body, before, after)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestStoreApplies(t *testing.T) {
	p := newPublisher(t)
	p.want(`{"op":"set","key":"tower","values":{"hp":92,"1":[1,2,4],"owner":"me"}}`, `"seq":`)
	p.want(`{"op":"set","key":"n","values":{"big":"9223372036854775807"}}`, `"seq":`)
	p.want(`{"op":"audience","key":"n","audience":{"all":true,"except":{"clients":["c1"]}}}`, `"seq":`)
	const want = `[{"op":"put","key":"n","message":"n","access":"read-only","audience":{"all":true,"except":{"groups":[],"clients":["c1"]}},"values":[` +
		`{"name":"a","type":"uint8","value":1},{"name":"big","type":"sint64","value":"9223372036854775807"}]},` +
		`{"op":"put","key":"tower","message":"text","farewell":"gone","access":"read-only","audience":{"all":true},"values":[` +
		`{"name":"hp","type":"float32","value":92,"precision":0.1},` +
		`{"name":"pos","type":"vector3f32","value":[1,2,4],"precision":0.01},` +
		`{"name":"owner","type":"string","value":"me","nullable":true,"null":""}]}]}`
	if got := p.get(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	states, _ := strings.CutSuffix(want, "}")
	p.want(`{"op":"clear"}`, `"seq":`)
	p.want(`{"ops":`+states+`}`, `"seq":`)
	if got := p.get(); got != want {
		t.Errorf("the answer to the get, published again, became\n%s", got)
	}
}

func TestStoreNotAtomic(t *testing.T) {
	p := newPublisher(t)
	got := p.publish(`{"ops":[{"op":"set","key":"n","values":{"a":5}},{"op":"set"},{"op":"set","key":"n","values":{"a":"x"}},{"op":"remove","key":"tower"}],"atomic":false}`)
	for _, want := range []string{
		`"results":[{"ok":true},{"error":{"code":"bad_request","message":"an op needs \"key\", unless the subject has it","op":1}},` +
			`{"error":{"code":"type_mismatch","message":"value \"a\": want uint8, got string","op":2}},{"ok":true}]`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	if states := p.get(); strings.Contains(states, "tower") || !strings.Contains(states, `"value":5`) {
		t.Errorf("the good ops were not applied: %s", states)
	}
}
