package admit

import "hash/maphash"

// A bucket holds the tokens of one prefix. It takes 16 bytes.
type bucket struct {
	tag    uint32 // of the prefix; 0 is an unused bucket
	tokens float32
	at     int64 // when it had that many
}

// A table holds token buckets by prefix, in sets of ways by a keyed hash. A prefix
// whose set is full evicts the one with the most tokens: a full bucket says no more than
// no bucket.
//
// Two prefixes in the same set share a bucket if their tags are equal, one pair in
// 4 billion.
type table struct {
	rate    float64
	buckets []bucket
	seed    maphash.Seed
	salt    byte // makes the hashes of two tables independent
}

const ways = 8

func newTable(size int, rate float64, seed maphash.Seed, salt byte) table {
	t := table{rate: rate, seed: seed, salt: salt}
	if rate > 0 {
		t.buckets = make([]bucket, size)
	}
	return t
}

// provenSalt makes the bucket of a prefix for proven addresses another one.
const provenSalt = 0x80

// find returns the bucket of a prefix for proven addresses or others, refilled.
func (t *table) find(now int64, prefix []byte, proven bool) *bucket {
	var key [17]byte
	key[0] = t.salt
	if proven {
		key[0] |= provenSalt
	}
	n := 1 + copy(key[1:], prefix)
	h := maphash.Bytes(t.seed, key[:n])
	tag := uint32(h>>32) | 1
	set := t.buckets[h%uint64(len(t.buckets)/ways)*ways:][:ways]
	victim, most := &set[0], float32(-1)
	for i := range set {
		b := &set[i]
		switch {
		case b.tag == tag:
			t.fill(b, now)
			return b
		case b.tag == 0:
			*b = bucket{tag: tag, tokens: t.full(), at: now}
			return b
		}
		if t.fill(b, now); b.tokens > most {
			victim, most = b, b.tokens
		}
	}
	*victim = bucket{tag: tag, tokens: t.full(), at: now}
	return victim
}

func (t *table) full() float32 { return float32(max(1, burstFactor*t.rate)) }

func (t *table) fill(b *bucket, now int64) {
	b.tokens, b.at = filled(b.tokens, t.full(), t.rate, b.at, now), max(b.at, now)
}

// filled returns how many tokens a bucket has at now that had tokens at since.
func filled[F float32 | float64](tokens, full F, rate float64, since, now int64) F {
	if now <= since {
		return tokens
	}
	return F(min(float64(full), float64(tokens)+rate*float64(now-since)/1e9))
}

// A single is a bucket that all addresses share. It holds one second of its rate.
type single struct {
	rate   float64
	tokens float64
	at     int64
}

func newSingle(rate float64) single { return single{rate: rate, tokens: max(1, rate)} }

func (s *single) take(now int64) bool {
	if s.rate <= 0 {
		return true
	}
	s.tokens, s.at = filled(s.tokens, max(1, s.rate), s.rate, s.at, now), max(s.at, now)
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}
