package protocol

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"
)

// Sizes of a cookie in bytes.
const (
	cookieStamp = 8
	cookieMAC   = 16
	CookieSize  = cookieStamp + cookieMAC
)

// cookieTime is how long a cookie begins a session. A session that has begun keeps its own.
const cookieTime = 20 * time.Second

// A Cookie is what a peer has to repeat to show that it gets what is sent to its address. It is the first element of every
// datagram of its session, and cannot be guessed:
//
//	time   uint32, big endian, seconds
//	count  uint32, big endian, of the cookies
//	mac    [16]byte, of time, count and the address of the peer
//
// So an edge remembers nothing of peers that have not shown it.
type Cookie [CookieSize]byte

// newer reports whether c was made after o.
func (c *Cookie) newer(o *Cookie) bool {
	return bytes.Compare(c[:cookieStamp], o[:cookieStamp]) > 0
}

// Cookies makes and checks cookies. One owner calls its methods.
type Cookies struct {
	secret []byte
	base   time.Time
	count  uint32
}

// NewCookies returns Cookies with a secret of at least 16 random bytes.
func NewCookies(secret []byte, now time.Time) *Cookies { return &Cookies{secret: secret, base: now} }

// New returns a cookie for a peer. No two are alike.
func (c *Cookies) New(now time.Time, peer netip.AddrPort) (k Cookie) {
	c.count++
	binary.BigEndian.PutUint32(k[:], c.seconds(now))
	binary.BigEndian.PutUint32(k[4:], c.count)
	c.sign(&k, peer)
	return k
}

// Valid reports whether p is a cookie that was made for this peer, a short time ago.
func (c *Cookies) Valid(now time.Time, peer netip.AddrPort, p []byte) (k Cookie, ok bool) {
	if len(p) != CookieSize {
		return k, false
	}
	copy(k[:cookieStamp], p)
	c.sign(&k, peer)
	age := c.seconds(now) - binary.BigEndian.Uint32(p)
	return k, hmac.Equal(k[:], p) && age <= uint32(cookieTime/time.Second)
}

func (c *Cookies) seconds(now time.Time) uint32 { return uint32(now.Sub(c.base) / time.Second) }

func (c *Cookies) sign(k *Cookie, peer netip.AddrPort) {
	h := hmac.New(sha256.New, c.secret)
	ip := peer.Addr().As16()
	h.Write(k[:cookieStamp])
	h.Write(ip[:])
	h.Write([]byte(peer.Addr().Zone()))
	h.Write(binary.BigEndian.AppendUint16(nil, peer.Port()))
	copy(k[cookieStamp:], h.Sum(nil))
}
