package compose

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// The field of the demo: a flock moves in it, and a player walks through it. Clients see it that are in its group,
// into which the demo puts whoever sends the name of the group as a message.
const (
	fieldGroup    = "field"
	fieldHalf     = 40.0 // from the middle to a side
	flockSize     = 200
	flockInterval = 100 * time.Millisecond
)

// fieldPut makes the interest and the player of the field. Everybody in the field may move the player.
const fieldPut = `{"op":"interest","name":"flock","at":"pos","axes":"xz","bands":[
  {"within":10},{"within":20,"rate":4,"precision":4},{"within":32,"rate":1,"precision":16}]},
 {"op":"put","key":"player","message":"player","access":"read-write","audience":{"groups":["field"]},"values":[
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

// set returns the ops that say where the flock is.
func (f flock) set() string {
	b := strings.Builder{}
	b.WriteString(`{"ops":[`)
	for i, o := range f {
		if i > 0 {
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
	ticker := time.NewTicker(flockInterval)
	defer ticker.Stop()
	for body := f.put(); ; {
		if d.publish(body) {
			f.step(flockInterval.Seconds())
			body = f.set()
		} else {
			body = f.put()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// admit lets a client into the field, in which it sees from where the player is. The client asks again if that fails.
func (d *demo) admit(name string) {
	body := fmt.Appendf(nil, `{"ops":[{"op":"group","client":%q,"join":[%q]},{"op":"eye","client":%q,"at":"player#pos"}]}`, name, fieldGroup, name)
	d.bus.Request(bus.Msg{Subject: d.subjects.Publish(d.space, ""), Data: body}, time.Second, func(bus.Msg, error) {})
}

// A player is a client in the field of the demo.
type player struct {
	url     string // of the edge
	profile wire.Profile
	log     *slog.Logger
}

// How the player walks.
const (
	playerInterval = 100 * time.Millisecond
	playerSpeed    = 3.0             // per second
	playerRests    = 8 * time.Second // after somebody else has moved it
	playerReturns  = 5 * time.Second // after its connection ended
	playerAsks     = time.Second     // between requests to be let into the field
)

// playerWay is where the player walks, round and round.
var playerWay = [][2]float64{{24, -24}, {24, 24}, {-24, 24}, {-24, -24}}

// run plays until ctx ends.
func (p *player) run(ctx context.Context) error {
	for {
		if err := p.play(ctx); err != nil && ctx.Err() == nil {
			p.log.Debug("the player of the demo is gone for a while", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(playerReturns):
		}
	}
}

// play is one connection of the player.
func (p *player) play(ctx context.Context) error {
	var moved atomic.Int64 // when somebody else moved the player, in Unix nanoseconds
	c, err := client.Dial(ctx, p.url, client.Config{Profile: p.profile, Change: func(_ *client.Client, s *client.State, _ []int) {
		if s.Key() == "player" {
			moved.Store(time.Now().UnixNano())
		}
	}})
	if err != nil {
		return err
	}
	defer c.Close()
	me, err := p.enter(ctx, c)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(playerInterval)
	defer ticker.Stop()
	for corner := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return c.Err()
		case now := <-ticker.C:
			if now.Sub(time.Unix(0, moved.Load())) < playerRests {
				continue
			}
		}
		at := me.AppendFloats(nil, 0)
		x, z, arrived := walk(at[0], at[2], playerWay[corner], playerSpeed*playerInterval.Seconds())
		if arrived {
			corner = (corner + 1) % len(playerWay)
		}
		if err := me.SetAt(0, []float64{x, at[1], z}); err != nil {
			return err
		}
	}
}

// enter asks to be let into the field until the client sees the player.
func (p *player) enter(ctx context.Context, c *client.Client) (*client.State, error) {
	for {
		if err := c.Send([]byte(fieldGroup)); err != nil {
			return nil, err
		}
		within, cancel := context.WithTimeout(ctx, playerAsks)
		me, err := c.Await(within, "player")
		cancel()
		if err == nil {
			return me, nil
		}
		if ctx.Err() != nil || c.Err() != nil {
			return nil, err
		}
	}
}

// walk returns where one is after a step towards a point, and whether that is the point.
func walk(x, z float64, to [2]float64, step float64) (float64, float64, bool) {
	dx, dz := to[0]-x, to[1]-z
	d := math.Hypot(dx, dz)
	if d <= step {
		return to[0], to[1], true
	}
	return x + dx*step/d, z + dz*step/d, false
}
