package payload

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/replication"
)

// Types of the points of eyes.
const (
	typeVector2 wire.ValueType = 31 // of 64 bits
	typeVector3 wire.ValueType = 34
)

// interestFields are the fields of an interest.
var interestFields = []string{"at", "axes", "bands", "beyond", "events"}

// putInterest parses the interest of a put: an object, the name of one, or null for none.
func putInterest(op *replication.Op, f *fields) {
	n, given := f.get("interest")
	if op.HasInterest = given; !given || f.err != nil {
		return
	}
	switch n.kind() {
	case kindNull:
	case kindString:
		op.InterestName, f.err = token("interest", n)
	case kindObject:
		in := parseOnly(n, `field "interest"`, interestFields...)
		op.Interest = parseInterest(&in)
		f.err = in.err
	default:
		f.err = badRequest(`field "interest": want an object, the name of an interest, or %s, got %s`, n.word(kindNull), n.got())
	}
}

// opInterest parses the op that makes a named interest. Without bands the op removes it.
func opInterest(op *replication.Op, f *fields) {
	required(f, "name", kindString, &op.InterestName, token, `the op needs "name"`)
	if n, ok := f.get("bands"); ok && n.kind() == kindArray {
		if l := n.list(); !l.some() {
			return
		}
	}
	op.Interest = parseInterest(f)
}

func parseInterest(f *fields) *replication.Interest {
	x := &replication.Interest{}
	required(f, "at", kindString, &x.At, text, `an interest needs "at", the value with the place`)
	x.At = strings.Clone(x.At)
	optional(f, "axes", kindString, &x.Axes, axes)
	required(f, "bands", kindArray, &x.Bands, bands, `an interest needs "bands"`)
	optional(f, "beyond", kindString, &x.Unlink, beyond)
	optional(f, "events", kindBoolean, &x.Events, boolean)
	return x
}

func axes(_ string, n node) (interest.Axes, *replication.Error) {
	s, err := n.text()
	if err != nil {
		return 0, err
	}
	a, ok := interest.ParseAxes(s)
	if !ok {
		return 0, badRequest(`axes %q: want some of "xyz", in this order`, clip(s))
	}
	return a, nil
}

func beyond(_ string, n node) (unlink bool, err *replication.Error) {
	switch s, _ := n.text(); s {
	case "sleep":
		return false, nil
	case "unlink":
		return true, nil
	default:
		return false, badRequest(`beyond %q: want "sleep" or "unlink"`, clip(s))
	}
}

func bands(name string, n node) ([]replication.Band, *replication.Error) {
	return entries(name, n, interest.BandsMax, parseBand)
}

func parseBand(n node) (b replication.Band, err *replication.Error) {
	f := parseOnly(n, "the band", "within", "precision", "rate")
	required(&f, "within", kindNumber, &b.Within, between(interest.WithinMin, interest.WithinMax), `want "within"`)
	optional(&f, "precision", kindNumber, &b.Precision, between(1, replication.DetailPrecisionMax))
	optional(&f, "rate", kindNumber, &b.Rate, between(replication.DetailRateMin, replication.DetailRateMax))
	return b, f.err
}

// eyes parses from where a client sees: a key, a point, a list of these, or null for nowhere.
func eyes(_ string, n node) (all []replication.Eye, err *replication.Error) {
	if n.isNull() {
		return nil, nil
	}
	if !severalEyes(n) {
		e, err := eye(n)
		return []replication.Eye{e}, err
	}
	for l := n.list(); l.some(); {
		if len(all) == interest.EyesMax {
			return nil, replication.Errorf(replication.CodeTooLarge, `field "at": more than %d eyes`, interest.EyesMax)
		}
		e, err := eye(l.element())
		if err != nil {
			return nil, err.In("eye " + strconv.Itoa(len(all)))
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, badRequest(`field "at": want an eye, or %s for none`, n.word(kindNull))
	}
	return all, nil
}

// severalEyes reports whether n is a list of eyes, and not a point, which is a list of numbers.
func severalEyes(n node) bool {
	if n.kind() != kindArray {
		return false
	}
	l := n.list()
	if !l.some() {
		return true
	}
	first := l.element()
	return first.kind() != kindNumber
}

// eye parses a key, perhaps with a value behind #, or a point of two or three numbers.
func eye(n node) (e replication.Eye, err *replication.Error) {
	if n.kind() == kindString {
		s, err := n.text()
		if err != nil {
			return e, err
		}
		e.Key, e.Value, _ = strings.Cut(strings.Clone(s), "#")
		if e.Key == "" || strings.HasSuffix(s, "#") {
			return e, badRequest("%q is not a key, nor a key and a value with # between them", clip(s))
		}
		return e, nil
	}
	for _, t := range [...]wire.ValueType{typeVector3, typeVector2} {
		if enc, err := n.appendValue(nil, t); err == nil {
			e.At = replication.Place(t, enc)
			return e, nil
		}
	}
	return e, badRequest("want a key, or a point of 2 or 3 numbers, got %s", n.got())
}

// ParseEveryEye parses the eye of all clients: {"key":"player.{client}"}, and perhaps "value". An empty text is none.
func ParseEveryEye(flag string) (e replication.Eye, err *replication.Error) {
	if flag == "" {
		return e, nil
	}
	n, err := JSON.root([]byte(flag))
	if err != nil {
		return e, err
	}
	f := parseOnly(n, "the eye", "key", "value")
	required(&f, "key", kindString, &e.Key, text, `want "key"`)
	optional(&f, "value", kindString, &e.Value, text)
	if f.err == nil {
		f.err = replication.CheckEveryEye(e)
	}
	return e, f.err
}

// interest writes the interest of a state: its name, or what it says if it belongs to the state.
func (e *emitter) interest(name string, x *replication.Interest) {
	switch {
	case name == "":
	case !replication.IsInline(name):
		e.textField("interest", name)
	case x != nil:
		e.key("interest").object()
		e.interestFields(x)
		e.end()
	}
}

// eyesText returns the eyes of a client.
func eyesText(eyes []replication.Eye) []byte {
	var all []any // in JSON null for none
	for _, x := range eyes {
		switch {
		case x.Key == "":
			all = append(all, [3]float64{x.At.X, x.At.Y, x.At.Z})
		case x.Value == "":
			all = append(all, x.Key)
		default:
			all = append(all, x.Key+"#"+x.Value)
		}
	}
	text, _ := json.Marshal(all) // never fails for keys and finite numbers
	return text
}

// interestFields writes what an interest says.
func (e *emitter) interestFields(x *replication.Interest) {
	e.textField("at", x.At)
	e.textField("axes", x.Axes.String())
	writeList(e, "bands", x.Bands, func(b *replication.Band) {
		e.object()
		e.floatField("within", b.Within)
		e.floatField("precision", b.Precision)
		e.floatField("rate", b.Rate)
		e.end()
	})
	if x.Unlink {
		e.textField("beyond", "unlink")
	}
	e.flag("events", x.Events)
}
