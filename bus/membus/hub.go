package membus

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
)

// Bounds, as the defaults of a NATS server.
const (
	defaultMessageMax = 1 << 20
	transitMax        = 65536 // messages in transit from one publisher to one subscription
)

// A Config says how the hub behaves. Its fields may change while it runs.
type Config struct {
	// Schedule calls f after delay of simulated time, and never before it returns. It calls
	// functions of the same time in the order of scheduling.
	Schedule func(delay time.Duration, f func())

	// Rand decides about jitter, loss and duplicates; required if one of them is set.
	Rand *rand.Rand

	Delay     time.Duration // of each delivery
	Jitter    time.Duration // up to this much more
	Loss      float64       // probability that a delivery is lost
	Duplicate float64       // probability that a delivery happens twice

	MessageMax int // bytes of data; 0 means 1 MiB

	// Shards, if not 0, sends the requests of publishers to the shard of their space, as the
	// mappings of subject.Names do on a NATS server.
	Shards int

	// Tap sees every message that a node publishes, after mapping and before loss or delay. nil
	// disables it.
	Tap func(from string, m bus.Msg)

	// Damage replaces a message in transit to a node by a damaged one. It must not change the
	// bytes of m in place. nil disables it.
	Damage func(to string, m bus.Msg) bus.Msg
}

// Stats count the messages in transit to subscriptions.
type Stats struct {
	Published, Delivered, Lost, Duplicated uint64
	Overflow                               uint64 // lost because transitMax messages were in transit
}

// A Hub connects all nodes.
type Hub struct {
	Config
	Stats Stats

	nodes map[string]*Bus
	subs  []*subscription // in the order of subscribing, so that runs repeat
	cuts  map[[2]string]bool
}

// New returns a hub without nodes.
func New(cfg Config) *Hub {
	cfg.MessageMax = cmp.Or(cfg.MessageMax, defaultMessageMax)
	return &Hub{Config: cfg, nodes: map[string]*Bus{}, cuts: map[[2]string]bool{}}
}

// Node returns the bus of the node with this name, always the same one.
func (h *Hub) Node(name string) *Bus {
	b := h.nodes[name]
	if b == nil {
		b = &Bus{hub: h, name: name, connected: true}
		h.nodes[name] = b
	}
	return b
}

// Cut stops or resumes all messages between two nodes, in both directions. Both nodes stay
// connected.
func (h *Hub) Cut(a, b string, cut bool) {
	h.cuts[[2]string{min(a, b), max(a, b)}] = cut
}

func (h *Hub) isCut(a, b string) bool { return h.cuts[[2]string{min(a, b), max(a, b)}] }

// publish puts m in transit to all matching subscriptions and reports whether there is one.
func (h *Hub) publish(from *Bus, m bus.Msg) (interest bool) {
	h.Stats.Published++
	m.Subject = h.mapped(m.Subject)
	subject := tokens(m.Subject)
	if h.Tap != nil {
		h.Tap(from.name, m)
	}
	for _, s := range h.subs {
		if h.isCut(from.name, s.bus.name) || !s.bus.connected || !matches(s.pattern, subject) {
			continue
		}
		interest = true
		h.send(from, s, m)
		if h.happens(h.Duplicate) {
			h.Stats.Duplicated++
			h.send(from, s, m)
		}
	}
	return interest
}

// Subjects without the space that is their next token.
var (
	subjects = subject.Names{}
	publish  = strings.TrimSuffix(subjects.PublishAll(), ">")
	get      = strings.TrimSuffix(subjects.GetAll(), ">")
)

// mapped returns the subject at which a NATS server with the mappings of subject.Names delivers.
func (h *Hub) mapped(s string) string {
	to := subjects.ShardPublish
	rest, ok := strings.CutPrefix(s, publish)
	if !ok {
		to = subjects.ShardGet
		rest, ok = strings.CutPrefix(s, get)
	}
	if !ok || h.Shards == 0 {
		return s
	}
	space, key, _ := strings.Cut(rest, ".")
	return to(cluster.Shard(space, h.Shards), space, key)
}

func tokens(subject string) []string { return strings.Split(subject, ".") }

// matches reports whether subject matches pattern by the rules of NATS.
func matches(pattern, subject []string) bool {
	for i, p := range pattern {
		if p == ">" {
			return len(subject) > i
		}
		if i >= len(subject) || p != "*" && p != subject[i] {
			return false
		}
	}
	return len(pattern) == len(subject)
}

func (h *Hub) happens(probability float64) bool {
	return probability > 0 && h.Rand.Float64() < probability
}

func (h *Hub) delay() time.Duration {
	if h.Jitter <= 0 {
		return h.Delay
	}
	return h.Delay + time.Duration(h.Rand.Int64N(int64(h.Jitter)))
}

// send puts m in transit. Each scheduled function delivers the first message of its transit, so
// that jitter does not change the order of messages.
func (h *Hub) send(from *Bus, s *subscription, m bus.Msg) {
	if h.happens(h.Loss) {
		h.Stats.Lost++
		return
	}
	if h.Damage != nil {
		m = h.Damage(s.bus.name, m)
	}
	t := s.transit(from.name)
	if len(t.waiting) >= transitMax {
		h.Stats.Overflow++
		return
	}
	t.waiting = append(t.waiting, m)
	h.Schedule(h.delay(), func() { h.arrive(from, s, t) })
}

func (h *Hub) arrive(from *Bus, s *subscription, t *transit) {
	m := t.waiting[0]
	t.waiting = t.waiting[1:]
	if s.off || t.dropped {
		return
	}
	if !s.bus.connected || h.isCut(from.name, s.bus.name) {
		h.Stats.Lost++
		return
	}
	h.Stats.Delivered++
	s.handle(m)
}

func (h *Hub) remove(s *subscription) {
	h.subs = slices.DeleteFunc(h.subs, func(other *subscription) bool { return other == s })
}

// A subscription is one handler of one node.
type subscription struct {
	bus     *Bus
	pattern []string
	handle  func(bus.Msg)
	off     bool

	transits map[string]*transit // by publisher
}

// A transit holds the messages on their way from one publisher to one subscription.
type transit struct {
	waiting []bus.Msg
	dropped bool // its messages were lost with the connection
}

func (s *subscription) transit(from string) *transit {
	t := s.transits[from]
	if t == nil {
		t = &transit{}
		s.transits[from] = t
	}
	return t
}
