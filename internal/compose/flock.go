package compose

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// The field of the demo: a flock moves in it, and a player walks through it. Clients see it that are in its group,
// into which the demo puts whoever sends the name of the group as a message.
const (
	fieldGroup    = "field"
	fieldHalf     = 40.0 // from the middle to a side
	flockSize     = 200
	flockInterval = 100 * time.Millisecond
)

// fieldPut makes the interest and the player of the field.
const fieldPut = `{"op":"interest","name":"flock","at":"pos","axes":"xz","bands":[
  {"within":10},{"within":20,"rate":4,"precision":4},{"within":32,"rate":1,"precision":16}]},
 {"op":"put","key":"player","message":"player","audience":{"groups":["field"]},"values":[
  {"name":"pos","type":"vector3f32","value":[0,0,0],"precision":0.001}]}`

// A boid is one of a flock: where it is in the field, and how it moves, per second.
type boid struct{ x, z, vx, vz float64 }

// A flock is a model of birds: each keeps away from those that are very near, and flies like its neighbours and
// towards their middle.
type flock []boid

func newFlock(r *rand.Rand, n int) flock {
	f := make(flock, n)
	for i := range f {
		angle := 2 * math.Pi * r.Float64()
		f[i] = boid{fieldHalf * (2*r.Float64() - 1), fieldHalf * (2*r.Float64() - 1), flockSlow * math.Cos(angle), flockSlow * math.Sin(angle)}
	}
	return f
}

// How boids move. The numbers are those with which the flock looks like one.
const (
	flockSees        = 7.0 // from how far a boid knows another
	flockNear        = 1.6
	flockSlow        = 3.0 // least and greatest speed, per second
	flockFast        = 6.0
	flockApart       = 4.0 // weights of the three rules, and of the way back from a side
	flockAlike       = 0.8
	flockTogether    = 0.25
	flockBack        = 6.0
	flockBackFromEnd = 6.0 // before a side
)

// step moves the flock by some seconds.
func (f flock) step(seconds float64) {
	for i := range f {
		ax, az := f.urge(i)
		b := &f[i]
		b.vx, b.vz = b.vx+ax*seconds, b.vz+az*seconds
		if v := math.Hypot(b.vx, b.vz); v > 0 {
			k := min(max(v, flockSlow), flockFast) / v
			b.vx, b.vz = b.vx*k, b.vz*k
		}
		b.x = min(max(b.x+b.vx*seconds, -fieldHalf), fieldHalf)
		b.z = min(max(b.z+b.vz*seconds, -fieldHalf), fieldHalf)
	}
}

// urge returns how a boid wants to change how it moves.
func (f flock) urge(i int) (ax, az float64) {
	b := f[i]
	var n, x, z, vx, vz float64
	for j, o := range f {
		dx, dz := o.x-b.x, o.z-b.z
		d := math.Hypot(dx, dz)
		if j == i || d > flockSees {
			continue
		}
		n, x, z, vx, vz = n+1, x+dx, z+dz, vx+o.vx-b.vx, vz+o.vz-b.vz
		if d < flockNear && d > 0 {
			ax, az = ax-flockApart*dx/d, az-flockApart*dz/d
		}
	}
	if n > 0 {
		ax, az = ax+(flockAlike*vx+flockTogether*x)/n, az+(flockAlike*vz+flockTogether*z)/n
	}
	return ax + back(b.x), az + back(b.z)
}

// back returns how much a boid wants to turn at a coordinate near a side of the field.
func back(at float64) float64 {
	if over := math.Abs(at) - fieldHalf + flockBackFromEnd; over > 0 {
		return -math.Copysign(flockBack*over/flockBackFromEnd, at)
	}
	return 0
}

// put returns the ops that make the field and the states of the flock.
func (f flock) put() string {
	b := strings.Builder{}
	b.WriteString(`{"ops":[` + fieldPut)
	for i, o := range f {
		fmt.Fprintf(&b, `,{"op":"put","key":"boid.%d","message":"boid","audience":{"groups":[%q]},"interest":"flock","values":[{"name":"pos","type":"vector3f32","value":[%.2f,0,%.2f],"precision":0.01}]}`,
			i, fieldGroup, o.x, o.z)
	}
	return b.String() + "]}"
}

// set returns the ops that say where the flock is, and where the player is if that is not empty.
func (f flock) set(player string) string {
	b := strings.Builder{}
	b.WriteString(`{"ops":[` + player)
	for i, o := range f {
		if i > 0 || player != "" {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"op":"set","key":"boid.%d","values":{"pos":[%.2f,0,%.2f]}}`, i, o.x, o.z)
	}
	return b.String() + "]}"
}

// runField publishes the flock until ctx ends, and lets clients into the field that ask for it.
func (d *demo) runField(ctx context.Context) error {
	end, err := d.bus.Subscribe(d.subjects.From(d.space, "*"), func(m bus.Msg) {
		if _, name, ok := d.subjects.ParseFrom(m.Subject); ok && string(m.Data) == fieldGroup {
			d.admit(name)
		}
	})
	if err != nil {
		return fmt.Errorf("the field of the demo: %w", err)
	}
	defer end()
	f := newFlock(rand.New(rand.NewPCG(rand.Uint64(), 0)), flockSize)
	w, body := walker{}, f.put()
	for range turn.Every(ctx, flockInterval) {
		if d.publish(body) {
			f.step(flockInterval.Seconds())
			body = f.set(w.turn(time.Now(), d.heard))
		} else {
			body = f.put()
		}
	}
	return nil
}

// admit lets a client into the field, in which it sees from where the player is. The client asks again if that fails.
func (d *demo) admit(name string) {
	body := fmt.Appendf(nil, `{"ops":[{"op":"group","client":%q,"join":[%q]},{"op":"eye","client":%q,"at":"player#pos"}]}`, name, fieldGroup, name)
	d.bus.Request(bus.Msg{Subject: d.subjects.Publish(d.space, ""), Data: body}, time.Second, func(bus.Msg, error) {})
}

// A walker moves the player of the field round and round, until somebody else moves it: then it waits, and goes on
// from there.
type walker struct {
	x, z   float32
	corner int
	rests  time.Time               // until then it does not move
	own    [walkerKnows][2]float32 // where it was lately, which is no move of somebody else
	moves  int
}

// How the player walks.
const (
	walkerSpeed = 3.0 // per second
	walkerRests = 8 * time.Second
	walkerKnows = 64 // so many moves; those that come later from the edge are taken for those of others
)

// walkerWay has the corners of the way.
var walkerWay = [][2]float64{{24, -24}, {24, 24}, {-24, 24}, {-24, -24}}

// turn takes the places where a client saw the player, makes a step, and returns the op that publishes it; none if
// the walker rests.
func (w *walker) turn(now time.Time, heard <-chan [2]float32) string {
	for more := true; more; {
		select {
		case at := <-heard:
			w.hear(now, at)
		default:
			more = false
		}
	}
	if now.Before(w.rests) {
		return ""
	}
	w.step(walkerSpeed * flockInterval.Seconds())
	return fmt.Sprintf(`{"op":"set","key":"player","values":{"pos":[%v,0,%v]}}`, w.x, w.z)
}

// hear notes where the player is seen. Unless it was there by itself, somebody else has moved it.
func (w *walker) hear(now time.Time, at [2]float32) {
	if !slices.Contains(w.own[:], at) {
		w.x, w.z, w.rests = at[0], at[1], now.Add(walkerRests)
	}
}

func (w *walker) step(far float64) {
	to := walkerWay[w.corner]
	dx, dz := to[0]-float64(w.x), to[1]-float64(w.z)
	if d := math.Hypot(dx, dz); d > far {
		w.x, w.z = w.x+float32(dx*far/d), w.z+float32(dz*far/d)
	} else {
		w.x, w.z = float32(to[0]), float32(to[1])
		w.corner = (w.corner + 1) % len(walkerWay)
	}
	w.own[w.moves%walkerKnows] = [2]float32{w.x, w.z}
	w.moves++
}

// A player is a client in the field of the demo, who sees from where the state player is.
type player struct {
	url     string // of the edge
	profile wire.Profile
	heard   chan<- [2]float32 // where it sees the player; it drops what does not fit
	log     *slog.Logger
}

const (
	playerReturns = 5 * time.Second // after its connection ended
	playerAsks    = time.Second     // between requests to be let into the field
)

// run plays until ctx ends.
func (p *player) run(ctx context.Context) error {
	for {
		if err := p.play(ctx); err != nil && ctx.Err() == nil {
			p.log.Debug("the player of the demo is gone for a while", "err", err)
		}
		if !turn.Pause(ctx, playerReturns) {
			return nil
		}
	}
}

// play is one connection of the player.
func (p *player) play(ctx context.Context) error {
	c, err := client.Dial(ctx, p.url, client.Config{Profile: p.profile, Change: func(_ *client.Client, s *client.State, _ []int) {
		if s.Key() != "player" {
			return
		}
		at := s.AppendFloats(nil, 0)
		select {
		case p.heard <- [2]float32{float32(at[0]), float32(at[2])}:
		default:
		}
	}})
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		if c.State("player") == nil { // asks to be let in
			if err := c.Send([]byte(fieldGroup)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return c.Err()
		case <-time.After(playerAsks):
		}
	}
}
