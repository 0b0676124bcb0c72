package console

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// Bounds of a frame. What does not fit comes with the next one.
const (
	frameBytes  = 256 << 10
	frameEvents = 200 // of those that wait, too; the oldest give way
	eventMax    = 8 << 10
)

// A feed turns what happens to the copy of a space into frames for a page: JSON objects, each with what changed
// since the one before. A value that changes several times between two frames is there once.
type feed struct {
	space     string
	whole     []*replication.State // that are to be told with everything about them
	changed   []*replication.State // of which values are to be told
	gone      []uint64
	groups    map[string][]string  // by client; what is to be told
	interests map[string]*interest // by name; what is to be told
	eyes      map[string]struct{}  // clients whose eyes are to be told; "" for those of clients that were given none
	events    []json.RawMessage    // in the order in which they came
	missed    int                  // events that gave way
}

// A pending is what a page has not been told of a state. It is the Data of the state.
type pending struct {
	whole   bool // is in that list
	changed bool // is in that list
	gone    bool
	mask    netstate.Mask        // of values that changed
	few     [1]uint64            // the mask of a state with few values, beside the rest of what a change touches
	structs *linkmsg.Description // what the link message tells of the components of values; nil without such values
}

func newFeed(space string) *feed {
	return &feed{space: space, groups: make(map[string][]string), interests: make(map[string]*interest), eyes: make(map[string]struct{})}
}

// of returns what is pending of a state.
func of(s *replication.State) *pending {
	p, ok := s.Data.(*pending)
	if !ok {
		p = new(pending)
		if p.mask = p.few[:]; len(s.Desc.Values) > 64 {
			p.mask = netstate.NewMask(len(s.Desc.Values))
		}
		s.Data = p
	}
	return p
}

// Added implements replication.Observer, as the methods below do.
func (f *feed) Added(s *replication.State) { f.Described(s) }

func (f *feed) Described(s *replication.State) {
	p := of(s)
	p.structs = nil
	if slices.ContainsFunc(s.Desc.Values, func(d replication.ValueDef) bool { return d.Type == wire.TypeData }) {
		d := linkmsg.Parse(s.Desc.Message)
		p.structs = &d
	}
	if !p.whole {
		p.whole = true
		f.whole = append(f.whole, s)
	}
}

func (f *feed) Changed(s *replication.State, changed netstate.Mask) {
	p := of(s)
	if p.whole {
		return // its values are told with it
	}
	p.mask.Or(changed)
	if !p.changed {
		p.changed = true
		f.changed = append(f.changed, s)
	}
}

func (f *feed) Removed(s *replication.State) {
	of(s).gone = true
	f.gone = append(f.gone, s.Number)
}

func (f *feed) Groups(client string, groups []string) { f.groups[client] = slices.Clone(groups) }

func (f *feed) Interest(name string, x *replication.Interest) {
	f.interests[name] = describeInterest(x)
}

func (f *feed) Eyes(client string) { f.eyes[client] = struct{}{} }

// event adds an event of the space.
func (f *feed) event(data []byte) {
	if len(data) > eventMax || !json.Valid(data) {
		f.missed++
		return
	}
	if len(f.events) >= frameEvents {
		f.events = slices.Delete(f.events, 0, 1)
		f.missed++
	}
	f.events = append(f.events, data)
}

// waits reports whether there is something to tell.
func (f *feed) waits() bool {
	return len(f.whole)+len(f.changed)+len(f.gone)+len(f.groups)+len(f.interests)+len(f.eyes)+len(f.events)+f.missed > 0
}

// full reports whether the last frame had no room for everything.
func (f *feed) full() bool { return len(f.whole)+len(f.changed)+len(f.groups)+len(f.eyes) > 0 }

// A position is what a frame says of the copy.
type position struct {
	Epoch, Seq uint64
	Complete   bool
	Waiting    string // what it waits for; empty if it is complete
	Eyes       func(client string) []replication.Eye
}

// A head is the beginning of a frame.
type head struct {
	V        int      `json:"v"`
	Space    string   `json:"space"`
	Epoch    uint64   `json:"epoch"`
	Seq      uint64   `json:"seq"`
	Complete bool     `json:"complete"`
	Waiting  string   `json:"waiting,omitempty"`
	Gone     []uint64 `json:"gone,omitempty"`
}

// frame appends a frame, after which what it tells is no longer pending.
func (f *feed) frame(b []byte, at position) []byte {
	end := len(b) + frameBytes
	b = appendJSON(b, head{1, f.space, at.Epoch, at.Seq, at.Complete, at.Waiting, f.gone})
	b, f.gone = b[:len(b)-1], nil // the other fields follow
	b = appendMap(b, end, "groups", f.groups, func(_ string, groups []string) any { return groups })
	b = appendMap(b, end, "interests", f.interests, func(_ string, x *interest) any { return x })
	b = appendMap(b, end, "eyes", f.eyes, func(client string, _ struct{}) any { return eyesOf(at.Eyes, client) })
	if len(f.events) > 0 {
		b = append(b, `,"events":`...)
		b = appendJSON(b, f.events)
		f.events = nil
	}
	if f.missed > 0 {
		b = append(b, `,"missed":`...)
		b = strconv.AppendInt(b, int64(f.missed), 10)
		f.missed = 0
	}
	return append(f.states(b, end), '}')
}

// states appends the states that are new or differ in more than their values, and the values that changed,
// until the frame is full.
func (f *feed) states(b []byte, end int) []byte {
	b = append(b, `,"states":[`...)
	first, told := true, 0
	for ; told < len(f.whole) && len(b) < end; told++ {
		s := f.whole[told]
		p := of(s)
		if p.whole = false; !p.gone {
			b = f.state(separate(b, &first), s, p)
			p.mask.Reset() // of changes before its description
		}
	}
	f.whole = slices.Delete(f.whole, 0, told)
	b = append(b, `],"changed":[`...)
	first, told = true, 0
	for ; told < len(f.changed) && len(b) < end; told++ {
		s := f.changed[told]
		p := of(s)
		if p.changed = false; !p.gone && !p.mask.Empty() {
			b = f.values(separate(b, &first), s, p)
			p.mask.Reset()
		}
	}
	f.changed = slices.Delete(f.changed, 0, told)
	return append(b, ']')
}

// state appends everything about a state.
func (f *feed) state(b []byte, s *replication.State, p *pending) []byte {
	d := s.Desc
	names, types := make([]string, len(d.Values)), make([]string, len(d.Values))
	for i, v := range d.Values {
		names[i], types[i] = v.Name, v.Type.String()
	}
	b = append(b, `{"n":`...)
	b = strconv.AppendUint(b, s.Number, 10)
	b = append(b, `,"about":`...)
	b = appendJSON(b, about{
		Key: d.Key, Names: names, Types: types, Access: accessNames[d.Access.Kind], Writers: d.Access.Writers,
		Audience: audienceNames[d.Audience.Kind], Groups: d.Audience.Groups, Clients: d.Audience.Clients,
		Priority: max(1, int(d.Priority)), Levels: len(d.Details), Interest: d.Interest, Message: payload.MessageText(d.Message),
	})
	b = append(b, `,"values":[`...)
	for i := range d.Values {
		if i > 0 {
			b = append(b, ',')
		}
		b = f.value(b, s, p, i)
	}
	return append(b, "]}"...)
}

// about is what a page is told of a state besides its values.
type about struct {
	Key      string   `json:"key"`
	Names    []string `json:"names"` // "" for a value without a name
	Types    []string `json:"types"`
	Access   string   `json:"access"`
	Writers  []string `json:"writers,omitempty"`
	Audience string   `json:"audience"`
	Groups   []string `json:"groups,omitempty"` // of the audience
	Clients  []string `json:"clients,omitempty"`
	Priority int      `json:"priority"`
	Levels   int      `json:"levels"` // of detail, below the full one
	Interest string   `json:"interest,omitempty"`
	Message  string   `json:"message"`
}

var accessNames = map[replication.AccessKind]string{
	replication.AccessReadOnly: "read-only", replication.AccessReadWrite: "read-write", replication.AccessWriters: "writers",
}

var audienceNames = map[replication.AudienceKind]string{
	replication.AudienceNone: "none", replication.AudienceAll: "all", replication.AudienceListed: "listed", replication.AudienceAllBut: "all-but",
}

// values appends the number of a state, and the index and the value of each value that changed.
func (f *feed) values(b []byte, s *replication.State, p *pending) []byte {
	b = strconv.AppendUint(append(b, '['), s.Number, 10)
	for i, ok := p.mask.Next(0); ok; i, ok = p.mask.Next(i + 1) {
		b = strconv.AppendInt(append(b, ','), int64(i), 10)
		b = f.value(append(b, ','), s, p, i)
	}
	return append(b, ']')
}

func (f *feed) value(b []byte, s *replication.State, p *pending, i int) []byte {
	t := s.Values.Layout().Type(i)
	switch {
	case s.IsNull(i):
		return append(b, "null"...)
	case t == wire.TypeData:
		return payload.AppendStructValue(b, t, replication.DescribedFields(*p.structs, i), s.Values.Value(i))
	}
	return payload.AppendValue(b, t, s.Values.Value(i))
}

// separate appends a comma before all items but the first.
func separate(b []byte, first *bool) []byte {
	if *first {
		*first = false
		return b
	}
	return append(b, ',')
}

// appendMap appends a field with the entries of a map that fit into the frame, and takes them out of the map.
func appendMap[V any](b []byte, end int, field string, m map[string]V, what func(name string, v V) any) []byte {
	if len(m) == 0 || len(b) >= end {
		return b
	}
	b = append(append(append(b, `,"`...), field...), `":{`...)
	first := true
	for name, v := range m {
		if len(b) >= end {
			break
		}
		b = appendJSON(separate(b, &first), name)
		b = appendJSON(append(b, ':'), what(name, v))
		delete(m, name)
	}
	return append(b, '}')
}

func appendJSON(b []byte, v any) []byte {
	p, err := json.Marshal(v)
	if err != nil {
		panic(err) // only strings, numbers and valid JSON come here
	}
	return append(b, p...)
}
