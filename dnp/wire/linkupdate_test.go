package wire

import (
	"bytes"
	"testing"
)

// An updateTest builds a LinkUpdate of two links and reads it back. Link 1 has
// uint16, string; link 2 sint8. The bytes of profile spec are derived from the
// document, since no implementation of it exists.
var updateTests = []struct {
	profile Profile
	want    string
}{
	{Denetwork, "09 02 0100 02 0000 0700 0100 0200 7a7a 0200 01 0000 ff"},
	{Spec, "09 0200 0100 0200 03 0700 0b 0200 7a7a 0200 0100 00 ff"},
}

var updateTypes = map[LinkID][]ValueType{1: {3, TypeString}, 2: {0}}

func appendUpdate(b []byte, p Profile) []byte {
	b = p.AppendUpdateHead(b, 2)
	b = p.AppendUpdateLink(b, 1, 2)
	b = p.AppendUpdateValue(b, 0, 3, []byte{7, 0})
	b = p.AppendUpdateValue(b, 1, TypeString, []byte{2, 0, 'z', 'z'})
	b = p.AppendUpdateLink(b, 2, 1)
	return p.AppendUpdateValue(b, 0, 0, []byte{0xff})
}

func TestUpdateAppend(t *testing.T) {
	for _, tt := range updateTests {
		got := appendUpdate([]byte("x"), tt.profile)
		want := unhex(tt.want)
		if got[0] != 'x' || !bytes.Equal(got[1:], want) {
			t.Errorf("%v: % x, want % x behind the x", tt.profile, got, want)
		}
		size := tt.profile.UpdateHeadSize() + 2*tt.profile.UpdateLinkSize() +
			tt.profile.UpdateValueSize(2) + tt.profile.UpdateValueSize(4) + tt.profile.UpdateValueSize(1)
		if size != len(want) {
			t.Errorf("%v: the sizes add up to %d, want %d", tt.profile, size, len(want))
		}
		patched := tt.profile.AppendUpdateHead(nil, 99)
		tt.profile.PutUpdateLinks(patched, 2)
		countAt := len(patched) + 2
		patched = tt.profile.AppendUpdateLink(patched, 1, 99)
		tt.profile.PutUpdateCount(patched[countAt:], 2)
		if !bytes.Equal(patched, want[:len(patched)]) {
			t.Errorf("%v: counts put later give % x, want % x", tt.profile, patched, want[:len(patched)])
		}
	}
}

func TestUpdateRead(t *testing.T) {
	for _, tt := range updateTests {
		p := unhex(tt.want)[1:]
		u := tt.profile.UpdateReader(p)
		var back []byte
		for range 2 { // a copy of a reader reads the same
			v := u
			back = tt.profile.AppendUpdateHead(nil, 2)
			for {
				link, ok := v.NextLink()
				if !ok {
					break
				}
				back = tt.profile.AppendUpdateLink(back, link, len(updateTypes[link]))
				for {
					index, value, ok := v.NextValue(updateTypes[link])
					if !ok {
						break
					}
					back = tt.profile.AppendUpdateValue(back, index, updateTypes[link][index], value)
				}
			}
			if v.Err() != nil || !bytes.Equal(back[1:], p) {
				t.Fatalf("%v: read % x, %v, want % x", tt.profile, back[1:], v.Err(), p)
			}
		}
		for i := range p {
			u := tt.profile.UpdateReader(p[:i])
			for {
				link, ok := u.NextLink()
				if !ok {
					break
				}
				for {
					if _, _, ok := u.NextValue(updateTypes[link]); !ok {
						break
					}
				}
			}
			if u.Err() != ErrTruncated {
				t.Errorf("%v: reading %d of %d bytes: err = %v, want ErrTruncated", tt.profile, i, len(p), u.Err())
			}
		}
	}
}

func TestUpdateAllocs(t *testing.T) {
	buf := make([]byte, 0, 128)
	for _, p := range []Profile{Denetwork, Spec} {
		if n := testing.AllocsPerRun(100, func() {
			u := p.UpdateReader(appendUpdate(buf, p)[1:])
			for {
				link, ok := u.NextLink()
				if !ok {
					break
				}
				types := drainTypes[:1]
				if link == 1 {
					types = link1Types
				}
				for {
					if _, _, ok := u.NextValue(types); !ok {
						break
					}
				}
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations, want 0", p, n)
		}
	}
}

var link1Types = updateTypes[1]

func BenchmarkUpdateAppend(b *testing.B) {
	buf, value := make([]byte, 0, 1200), make([]byte, 12)
	b.ReportAllocs()
	for b.Loop() { // 40 links with one position each
		p := Denetwork.AppendUpdateHead(buf, 40)
		for i := range 40 {
			p = Denetwork.AppendUpdateLink(p, LinkID(i), 1)
			p = Denetwork.AppendUpdateValue(p, 0, 33, value)
		}
	}
}

func BenchmarkUpdateRead(b *testing.B) {
	p := Denetwork.AppendUpdateHead(nil, 40)
	for i := range 40 {
		p = Denetwork.AppendUpdateLink(p, LinkID(i), 1)
		p = Denetwork.AppendUpdateValue(p, 0, 33, make([]byte, 12))
	}
	types := []ValueType{33}
	b.ReportAllocs()
	for b.Loop() {
		u := Denetwork.UpdateReader(p[1:])
		for {
			if _, ok := u.NextLink(); !ok {
				break
			}
			for {
				if _, _, ok := u.NextValue(types); !ok {
					break
				}
			}
		}
		if u.Err() != nil {
			b.Fatal(u.Err())
		}
	}
}

func BenchmarkLinkStateParse(b *testing.B) {
	p := AppendLinkStateHead(nil, LinkState{Message: []byte("tower")}, 8)
	for range 8 {
		p = AppendTypedValue(p, 33, make([]byte, 12))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseLinkState(p[1:]); err != nil {
			b.Fatal(err)
		}
	}
}
