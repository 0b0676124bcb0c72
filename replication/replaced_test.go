package replication

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestRestoreTwoOfOneKey restores two states with one key, as two holders made them, in both orders, and with parts that
// come twice: the later one is there, with its values, interest and time to live, and nothing of the other.
func TestRestoreTwoOfOneKey(t *testing.T) {
	made := func(epoch uint64, value byte, more ...PutValue) Durable {
		s := newStoreTest(t, Limits{})
		s.Store = NewStore(StoreConfig{Space: "s", Epoch: epoch, FirstNumber: epoch<<14 + 1})
		s.ok(Op{Kind: OpPut, Key: "k", HasTTL: true, TTL: time.Minute, Values: append([]PutValue{{ValueDef: ValueDef{Name: "n", Type: typ("uint8")}, Value: u8(value)}}, more...)})
		s.Advance(s.now)
		return s.TakeDirty(nil, 1)[0]
	}
	older := made(3, 1, PutValue{ValueDef: ValueDef{Name: "gone", Type: typ("uint8")}, Value: u8(9)})
	newer := made(4, 2)
	for _, order := range [][]Durable{{older, newer}, {newer, older}, {older, newer, older, newer}, {newer, older, newer, older}} {
		s := newStoreTest(t, Limits{})
		s.Store = NewStore(StoreConfig{Space: "s", Epoch: 9, FirstNumber: 9<<14 + 1})
		var all []uint64
		for _, d := range order {
			replaced, err := s.Restore(d.Number, d.Data)
			if err != nil {
				t.Fatalf("state %d: %v", d.Number, err)
			}
			if replaced != 0 {
				all = append(all, replaced)
			}
		}
		l, err := s.Get("k")
		if err != nil || l.States[0].Number != newer.Number || l.States[0].Values.Layout().Len() != 1 || string(l.States[0].Values.Value(0)) != "\x02" {
			t.Fatalf("the store has %s, %v, want the state %d of the later holder", s.contents(), err, newer.Number)
		}
		if all = slices.Compact(all); len(all) != 1 || all[0] != older.Number {
			t.Errorf("%v are replaced, want %d", all, older.Number)
		}
		s.MarkDirty(s.now, older.Number)
		if d := s.TakeDirty(nil, 9); len(d) != 1 || d[0].Number != older.Number || d[0].Data != nil {
			t.Errorf("the durable store gets %v, want the end of %d", d, older.Number)
		}
		if stats := s.Stats(); stats.States != 1 || stats.Views != 1 {
			t.Errorf("%d states and %d views, want one", stats.States, stats.Views)
		}
		s.ok(Op{Kind: OpSet, Key: "k", Sets: []SetValue{{Name: "n", Value: u8(3)}}})
		s.Advance(s.now)
		s.now = s.now.Add(2 * time.Minute)
		s.Advance(s.now)
		if stats := s.Stats(); stats.States != 0 || stats.Expired != 1 {
			t.Errorf("%d states are left after the time to live, %d ended, want none and one", stats.States, stats.Expired)
		}
	}
}

// TestRestoreReplacedModel restores states of few keys in a random order, with repeats, and compares with the latest of each key.
func TestRestoreReplacedModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		want, replaced := map[string]Durable{}, map[uint64]bool{}
		var all []Durable
		for epoch := uint64(1); epoch < 8; epoch++ {
			s := newStoreTest(t, Limits{})
			s.Store = NewStore(StoreConfig{Space: "s", Epoch: epoch, FirstNumber: epoch<<14 + 1})
			for key := range 3 {
				if rng.IntN(2) == 0 {
					s.ok(tower(fmt.Sprint("k", key)))
				}
			}
			s.Advance(s.now)
			for _, d := range s.TakeDirty(nil, 9) {
				all = append(all, d)
				key := s.states.byNumber[d.Number].Desc.Key
				if old, ok := want[key]; ok {
					replaced[old.Number] = true
				}
				want[key] = d
			}
		}
		all = append(all, all[:rng.IntN(len(all)+1)]...)
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		s := newStoreTest(t, Limits{})
		s.Store = NewStore(StoreConfig{Space: "s", Epoch: 9, FirstNumber: 9<<14 + 1})
		got := map[uint64]bool{}
		for _, d := range all {
			number, err := s.Restore(d.Number, d.Data)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			got[number] = true
		}
		delete(got, 0)
		for key, d := range want {
			if l, err := s.Get(key); err != nil || l.States[0].Number != d.Number {
				t.Fatalf("seed %d: %s is not state %d: %v", seed, key, d.Number, err)
			}
		}
		if !maps.Equal(got, replaced) || len(s.states.byKey) != len(want) {
			t.Fatalf("seed %d: %v are replaced, want %v; %d states, want %d", seed, got, replaced, len(s.states.byKey), len(want))
		}
	}
}
