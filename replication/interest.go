package replication

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/subject"
)

// An Interest says from how far clients see a state, and how well.
type Interest struct {
	At    string        // the value that is the place of the state: a name, or an index in digits
	Axes  interest.Axes // between which distances are measured; 0 for all that the value has
	Bands []Band        // from near to far

	// Unlink says that the link of a client ends when the state is beyond all bands, with the farewell.
	// Otherwise the link stays and is not served.
	Unlink bool

	// Events asks edges to tell game servers which clients come to see the state, and cease to, EventSees and
	// EventUnsees, and which have its link, EventLinked.
	Events bool
}

// A Band is what clients get of a state within a distance. A zero Precision stands for 1, a zero Rate for no limit.
type Band struct {
	Within    float64
	Precision float64 // factor on the precision of every value
	Rate      float64 // changes a second
}

// Limits of interests and eyes.
const (
	InterestsMax    = 256 // of a space, those of single states included
	interestVersion = 1
	eyesVersion     = 1
	eyePoint        = 0 // kinds of eyes
	eyeState        = 1

	interestUnlink = 1    // flags of an interest
	interestEvents = 0x10 // from here on, flags that a node may ignore
)

// Rule returns the bands as package interest takes them, for a place of this type.
func (x *Interest) Rule(t wire.ValueType) (*interest.Rule, error) { return x.rule(axesOf(t)) }

// AxesOf returns between which axes distances are measured, for a place of this type.
func (x *Interest) AxesOf(t wire.ValueType) interest.Axes { return cmp.Or(x.Axes, axesOf(t)) }

// rule is Rule for a place that has these axes.
func (x *Interest) rule(has interest.Axes) (*interest.Rule, error) {
	within := make([]float64, len(x.Bands))
	for i, b := range x.Bands {
		within[i] = b.Within
	}
	return interest.NewRule(cmp.Or(x.Axes, has), within...)
}

// axesOf returns the axes that a place of this type has; 0 if it is none.
func axesOf(t wire.ValueType) interest.Axes {
	if !t.Valid() || t.Variable() {
		return 0
	}
	switch t.Components() {
	case 2:
		return interest.AxisX | interest.AxisY
	case 3:
		return interest.AllAxes
	}
	return 0
}

// Place returns the point that an encoded value of a point or vector type is. A component beyond what a float64 holds
// exactly is rounded.
func Place(t wire.ValueType, enc []byte) interest.Point {
	var v [3]float64
	width := t.Width()
	for i := range min(len(enc)/max(width, 1), 3) {
		c := enc[i*width : (i+1)*width]
		switch t.Kind() {
		case wire.KindFloat:
			v[i] = Float(c)
		case wire.KindSint:
			v[i] = float64(Int(c))
		default:
			v[i] = float64(Uint(c))
		}
	}
	return interest.Point{X: v[0], Y: v[1], Z: v[2]}
}

// check reports what is wrong with an interest, whatever states have it.
func (x *Interest) check() *Error {
	if !validValue(x.At) {
		return Errorf(CodeBadRequest, "interest: %q is not the name or index of a value", x.At)
	}
	if _, err := x.rule(interest.AllAxes); err != nil {
		return Errorf(CodeBadRequest, "interest: %v", err)
	}
	for i, b := range x.Bands {
		if d := (Detail{Precision: b.Precision, Rate: b.Rate}); !d.inRange() {
			return Errorf(CodeBadRequest, "interest: band %d: precision %v and rate %v: want 1 to %d and %v to %d", i, b.Precision, b.Rate, DetailPrecisionMax, DetailRateMin, DetailRateMax)
		}
	}
	return nil
}

// validValue reports whether s may name a value: by its name, or its index in digits.
func validValue(s string) bool {
	if ValidName(s) {
		return true
	}
	i, err := strconv.ParseUint(s, 10, 16)
	return err == nil && s == strconv.FormatUint(i, 10)
}

// Value returns the index of the place among the values of a state.
func (x *Interest) Value(defs []ValueDef) (int, *Error) {
	i := ValueIndex(defs, x.At)
	if i < 0 {
		return 0, Errorf(CodeBadRequest, "interest: there is no value %q", x.At)
	}
	has := axesOf(defs[i].Type)
	switch {
	case has == 0:
		return 0, Errorf(CodeTypeMismatch, "interest: value %q is %v, want a point or vector of 2 or 3 components", x.At, defs[i].Type)
	case x.Axes&^has != 0:
		return 0, Errorf(CodeTypeMismatch, "interest: value %q is %v and has no axis %v", x.At, defs[i].Type, x.Axes&^has)
	}
	return i, nil
}

// ValueIndex returns the index of the value with this name, or with this index in digits; -1 if there is none.
func ValueIndex(defs []ValueDef, name string) int {
	if i := slices.IndexFunc(defs, func(d ValueDef) bool { return d.Name == name && name != "" }); i >= 0 {
		return i
	}
	if i, err := strconv.ParseUint(name, 10, 16); err == nil && int(i) < len(defs) {
		return int(i)
	}
	return -1
}

// An Eye is a point from which a client sees: where a state is, or a fixed one.
type Eye struct {
	Key   string // of the state; empty for At
	Value string // its name, or index in digits; empty for the place of the interest of the state
	At    interest.Point
}

func (e Eye) check() *Error {
	switch {
	case e.Key == "":
		if p := e.At; p.X-p.X != 0 || p.Y-p.Y != 0 || p.Z-p.Z != 0 {
			return Errorf(CodeBadRequest, "eye: a point is not finite")
		}
	case !subject.ValidKey(e.Key) || reserved(e.Key):
		return Errorf(CodeBadRequest, "eye: %q is not a key", e.Key)
	case e.Value != "" && !validValue(e.Value):
		return Errorf(CodeBadRequest, "eye: %q is not the name or index of a value", e.Value)
	}
	return nil
}

// ClientInEye stands for the name of the client in the key of an eye that all clients have.
const ClientInEye = "{client}"

// CheckEveryEye reports what is wrong with the eye that clients have who were given none.
func CheckEveryEye(e Eye) *Error {
	if !strings.Contains(e.Key, ClientInEye) {
		return Errorf(CodeBadRequest, "eye: the key %q does not contain %s", e.Key, ClientInEye)
	}
	return e.of("c").check()
}

// of returns the eye of one client.
func (e Eye) of(client string) Eye {
	e.Key = strings.ReplaceAll(e.Key, ClientInEye, client)
	return e
}

// interestPrefix marks the interest of a state among its levels of detail: an entry for a client of this name, which no
// client can have.
const interestPrefix = "interest:"

func (d *Description) wireDetails() []Detail {
	if d.Interest == "" {
		return d.Details
	}
	return append(slices.Clip(d.Details), Detail{Clients: []string{interestPrefix + d.Interest}, Precision: 1})
}

// takeInterest takes the interest out of the levels of detail of a description that was read.
func (d *Description) takeInterest() {
	d.Details = slices.DeleteFunc(d.Details, func(x Detail) bool {
		if len(x.Clients) != 1 || len(x.Groups) > 0 {
			return false
		}
		name, ok := strings.CutPrefix(x.Clients[0], interestPrefix)
		if ok && subject.ValidToken(name) {
			d.Interest = name
		}
		return ok
	})
}

// appendInterest appends the data of the record that holds an interest:
//
//	version uint8 = 1
//	at      {length uint8, bytes}
//	axes    uint8: 1 x, 2 y, 4 z; 0 all
//	flags   uint8: 1 unlink, 16 events. A node cannot read an interest with a flag below 16 that it does not know,
//	        and ignores such flags from 16 on
//	count   uint8
//	bands   count × {within float64, precision float64, rate float64}
func appendInterest(b []byte, x *Interest) []byte {
	b = appendShort(append(b, interestVersion), x.At)
	flags := byte(0)
	if x.Unlink {
		flags = interestUnlink
	}
	if x.Events {
		flags |= interestEvents
	}
	b = append(b, byte(x.Axes), flags, byte(len(x.Bands)))
	for _, band := range x.Bands {
		for _, v := range [...]float64{band.Within, band.Precision, band.Rate} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
	}
	return b
}

// parseInterest returns the interest in a record; nil if this release cannot read it.
func parseInterest(p []byte) *Interest {
	r := wire.NewReader(p)
	if r.Uint8() != interestVersion {
		return nil
	}
	x := &Interest{At: readShort(&r), Axes: interest.Axes(r.Uint8())}
	flags := r.Uint8()
	x.Unlink, x.Events = flags&interestUnlink != 0, flags&interestEvents != 0
	for range min(int(r.Uint8()), interest.BandsMax+1) {
		x.Bands = append(x.Bands, Band{readFloat(&r), readFloat(&r), readFloat(&r)})
	}
	if _, err := finish(0, &r); err != nil || flags%interestEvents > interestUnlink || x.check() != nil {
		return nil
	}
	return x
}

// appendEyes appends the data of the record that holds the eyes of a client:
//
//	version uint8 = 1
//	count   uint8
//	eyes    count × {kind uint8 = 0, x float64, y float64, z float64}
//	              or {kind uint8 = 1, key {length uint16, bytes}, value {length uint8, bytes}}
func appendEyes(b []byte, eyes []Eye) []byte {
	b = append(b, eyesVersion, byte(len(eyes)))
	for _, e := range eyes {
		if e.Key != "" {
			b = appendShort(appendLong(append(b, eyeState), []byte(e.Key)), e.Value)
			continue
		}
		b = append(b, eyePoint)
		for _, v := range [...]float64{e.At.X, e.At.Y, e.At.Z} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
	}
	return b
}

// parseEyes returns the eyes in a record; none if this release cannot read it.
func parseEyes(p []byte) (eyes []Eye) {
	r := wire.NewReader(p)
	if r.Uint8() != eyesVersion {
		return nil
	}
	for range min(int(r.Uint8()), interest.EyesMax) {
		switch r.Uint8() {
		case eyePoint:
			eyes = append(eyes, Eye{At: interest.Point{X: readFloat(&r), Y: readFloat(&r), Z: readFloat(&r)}})
		case eyeState:
			eyes = append(eyes, Eye{Key: string(r.Bytes(int(r.Uint16()))), Value: readShort(&r)})
		default:
			return nil
		}
	}
	if _, err := finish(0, &r); err != nil {
		return nil
	}
	return eyes
}

// interest returns the interest with this name; nil if there is none that this release can read.
func (t *table[S]) interest(name string) *Interest {
	st, ok := t.byKey[interestKey(name)]
	if !ok {
		return nil
	}
	return parseInterest(recordOf(st.state()))
}

// eyes returns the eyes of a client: its own, or those that all clients have.
func (t *table[S]) eyes(client string) []Eye {
	if st, ok := t.byKey[eyesKey(client)]; ok {
		return parseEyes(recordOf(st.state()))
	}
	st, ok := t.byKey[eyesToken]
	if !ok {
		return nil
	}
	eyes := parseEyes(recordOf(st.state()))
	for i := range eyes {
		eyes[i] = eyes[i].of(client)
	}
	return eyes
}

// Interest returns the interest with this name, or nil.
func (s *Store) Interest(name string) *Interest { return s.states.interest(name) }

// Eyes returns the eyes of a client.
func (s *Store) Eyes(client string) []Eye { return s.states.eyes(client) }

// Interest returns the interest with this name, or nil.
func (r *Replica) Interest(name string) *Interest { return r.states.interest(name) }

// Eyes returns the eyes of a client.
func (r *Replica) Eyes(client string) []Eye { return r.states.eyes(client) }

// inlineMark begins the names of interests that belong to single states. Publishers cannot use such names.
const inlineMark = "_"

// IsInline reports whether an interest belongs to single states, and its name is a matter of the Store.
func IsInline(name string) bool { return strings.HasPrefix(name, inlineMark) }

// inlineName returns the name of an interest that a put has: one for all states that have the same.
func inlineName(x *Interest) string {
	sum := sha256.Sum256(appendInterest(nil, x))
	return inlineMark + hex.EncodeToString(sum[:16])
}

// nameInterest makes, changes or removes a named interest.
func (r *records) nameInterest(op *Op) *Error {
	if !subject.ValidToken(op.InterestName) || IsInline(op.InterestName) {
		return Errorf(CodeBadRequest, "%q is not the name of an interest", op.InterestName)
	}
	key := interestKey(op.InterestName)
	if op.Interest == nil {
		if n := r.users[op.InterestName]; n > 0 {
			return Errorf(CodeBadRequest, "interest %q is used by %d states", op.InterestName, n)
		}
		return r.set(key, nil)
	}
	if err := op.Interest.check(); err != nil {
		return err
	}
	if r.users[op.InterestName] > 0 {
		for _, st := range r.store.states.all {
			if st.dead || st.Desc.Interest != op.InterestName {
				continue
			}
			if _, err := op.Interest.Value(st.schema.defs); err != nil {
				return err.In(strconv.Quote(st.Desc.Key))
			}
		}
	}
	return r.keepInterest(key, op.Interest)
}

// keepInterest stores an interest, unless the space has as many as it may.
func (r *records) keepInterest(key string, x *Interest) *Error {
	if r.store.states.byKey[key] == nil {
		n := 0
		for _, st := range r.store.states.all {
			if !st.dead && firstToken(st.Desc.Key) == interestToken {
				n++
			}
		}
		if n >= InterestsMax {
			return Errorf(CodeTooLarge, "the space has %d interests, at most %d are allowed", n, InterestsMax)
		}
	}
	return r.set(key, appendInterest(nil, x))
}

// interestOf returns the name of the interest of a state after a put that gives it one. An interest that belongs to the
// state is stored under a name of its own.
func (r *records) interestOf(op *Op, defs []ValueDef) (name string, err *Error) {
	x := op.Interest
	switch {
	case x != nil:
		if err := x.check(); err != nil {
			return "", err
		}
		name = inlineName(x)
	case op.InterestName == "":
		return "", nil
	case !subject.ValidToken(op.InterestName) || IsInline(op.InterestName):
		return "", Errorf(CodeBadRequest, "%q is not the name of an interest", op.InterestName)
	default:
		name = op.InterestName
		if x = r.store.Interest(name); x == nil {
			return "", Errorf(CodeBadRequest, "there is no interest %q", name)
		}
	}
	if _, err := x.Value(defs); err != nil {
		return "", err
	}
	if op.Interest != nil && r.store.states.byKey[interestKey(name)] == nil {
		r.unused = append(r.unused, name) // unless the put succeeds
		return name, r.keepInterest(interestKey(name), x)
	}
	return name, nil
}

// checkInterest reports why the interest that a state has does not suit it.
func (r *records) checkInterest(d *Description) *Error {
	if d.Interest == "" {
		return nil
	}
	if len(d.Details) >= DetailsMax {
		return Errorf(CodeBadRequest, "lod: %d entries, at most %d are allowed beside an interest", len(d.Details), DetailsMax-1)
	}
	if x := r.store.Interest(d.Interest); x != nil {
		_, err := x.Value(d.Values)
		return err
	}
	return nil // the record got lost; its publisher says it again
}

// use counts the states that have an interest. One that belonged to single states ends with the last of them.
func (r *records) use(name string, n int) {
	if name == "" {
		return
	}
	r.users[name] += n
	if r.users[name] > 0 {
		return
	}
	delete(r.users, name)
	if IsInline(name) {
		r.unused = append(r.unused, name)
	}
}

// dropUnused removes the interests that belonged to single states of which none is left.
func (r *records) dropUnused() {
	for _, name := range r.unused {
		if st := r.store.states.byKey[interestKey(name)]; st != nil && r.users[name] == 0 {
			r.store.detach(st)
		}
	}
	clear(r.unused)
	r.unused = r.unused[:0]
}

// eye changes the eyes of a client.
func (r *records) eye(op *Op) *Error {
	if err := r.store.knowsClient(op.Client); err != nil {
		return err
	}
	if len(op.Eyes) > interest.EyesMax {
		return Errorf(CodeTooLarge, "%d eyes, at most %d are allowed", len(op.Eyes), interest.EyesMax)
	}
	for _, e := range op.Eyes {
		if err := e.check(); err != nil {
			return err
		}
	}
	return r.set(eyesKey(op.Client), appendEyes(nil, op.Eyes))
}

// everyEye makes the record of the eye that all clients have what the configuration says, while there are clients.
func (r *records) everyEye() {
	var data []byte
	if r.store.cfg.Eye.Key != "" && len(r.store.sessions) > 0 {
		data = appendEyes(nil, []Eye{r.store.cfg.Eye})
	}
	if r.set(eyesToken, data) != nil {
		r.store.stats.EyesRefused++ // no view is left; the next session tries again
	}
}

// records are what a Store keeps in records.
type records struct {
	store  *Store
	users  map[string]int // states that have an interest, by its name
	unused []string       // inline interests that may have no state
}

// A record is a hidden state with one data value, in which the Store tells edges what is not a state: groups,
// interests and eyes. Keyframes, checksums, repair and the durable store carry it like any other state. Its audience is
// empty.
func recordOf(st *State) []byte {
	if len(st.Desc.Values) != 1 || st.Desc.Values[0].Type != wire.TypeData {
		return nil
	}
	return st.Values.Value(0)[2:]
}

// set makes, changes or removes (nil) a record.
func (r *records) set(key string, data []byte) *Error {
	st := r.store.states.byKey[key]
	if data == nil {
		if st != nil {
			r.store.detach(st)
		}
		return nil
	}
	c := r.store.schemas.acquire([]ValueDef{{Type: wire.TypeData}}, valueMaxMax)
	defer r.store.schemas.release(c)
	r.store.edit.reset(1)
	if err := r.store.edit.add(c, 0, Encoded{wire.TypeData, appendLong(nil, data)}); err != nil {
		return err
	}
	if st != nil && st.schema.sameLayout(c) {
		r.store.applyEdit(st, &r.store.edit)
		return nil
	}
	return r.store.replace(st, Description{Key: key}, c, nil, Condition{})
}
