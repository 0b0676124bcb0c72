package wire

import (
	"math/rand/v2"
	"testing"
)

func TestSeq(t *testing.T) {
	tests := []struct {
		profile Profile
		n       uint64
		want    Seq
	}{
		{Denetwork, 0, 0}, {Denetwork, 65534, 65534}, {Denetwork, 65535, 0}, {Denetwork, 2*65535 + 3, 3},
		{Spec, 65535, 65535}, {Spec, 65536, 0}, {Spec, 2*65536 + 3, 3},
	}
	for _, tt := range tests {
		if got := tt.profile.Seq(tt.n); got != tt.want {
			t.Errorf("%v.Seq(%d) = %d, want %d", tt.profile, tt.n, got, tt.want)
		}
	}
}

func TestUnwrap(t *testing.T) {
	tests := []struct {
		profile Profile
		seq     Seq
		near    uint64
		want    uint64
		ok      bool
	}{
		{Denetwork, 0, 0, 0, true},
		{Denetwork, 9, 0, 9, true},
		{Denetwork, 65534, 0, 0, false},        // before the first
		{Denetwork, 65535, 65530, 0, false},    // a number that is never used
		{Denetwork, 0, 65530, 65535, true},     // ahead across the wrap
		{Denetwork, 65534, 65537, 65534, true}, // behind across the wrap
		{Denetwork, 32767, 0, 32767, true},     // half way round is still ahead
		{Denetwork, 32768, 65535, 32768, true}, // one more is behind
		{Spec, 65535, 65530, 65535, true},      // used here
		{Spec, 0, 65535, 65536, true},          //
		{Spec, 65535, 3 * 65536, 196607, true}, //
		{Spec, 3, 3*65536 - 2, 3*65536 + 3, true},
	}
	for _, tt := range tests {
		if got, ok := tt.profile.Unwrap(tt.seq, tt.near); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%v.Unwrap(%d, %d) = %d, %v, want %d, %v", tt.profile, tt.seq, tt.near, got, ok, tt.want, tt.ok)
		}
	}
}

// TestUnwrapModel: Unwrap finds every count that is at most 32,767 away by its wire
// number, around every wrap.
func TestUnwrapModel(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	for _, p := range []Profile{Denetwork, Spec} {
		for range 200_000 {
			near := rng.Uint64N(5 * p.Modulus())
			if rng.IntN(2) == 0 { // near a wrap
				near = p.Modulus()*(1+rng.Uint64N(4)) + rng.Uint64N(40) - 20
			}
			distance := rng.IntN(2*32767+1) - 32767
			n := int64(near) + int64(distance)
			if n < 0 {
				continue
			}
			s := p.Seq(uint64(n))
			if got, ok := p.Unwrap(s, near); !ok || got != uint64(n) {
				t.Fatalf("%v.Unwrap(%d, %d) = %d, %v, want %d", p, s, near, got, ok, n)
			}
		}
	}
}

func TestProfileNames(t *testing.T) {
	for _, p := range []Profile{Denetwork, Spec} {
		if back, ok := ParseProfile(p.String()); !ok || back != p {
			t.Errorf("ParseProfile(%q) = %v, %v", p.String(), back, ok)
		}
	}
	if _, ok := ParseProfile("raknet"); ok {
		t.Error("ParseProfile accepts an unknown name")
	}
	if got := Profile(9).String() + CommandLinkUp.String() + Command(12).String(); got != "profile?LinkUpCommand?" {
		t.Errorf("names are %q", got)
	}
}
