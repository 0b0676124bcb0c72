package payload

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// A GetRequest asks for the states of a space.
type GetRequest struct {
	After string // continue after this key; empty for the beginning
	Max   int    // states at most; 0 for as many as fit
}

// ParseGet parses the body of a get request, which may be empty.
func ParseGet(body []byte) (r GetRequest, err *replication.Error) {
	if len(body) == 0 {
		return r, nil
	}
	if err = check(body); err != nil {
		return r, err
	}
	f, err := parseFields(strings.Trim(string(body), whiteSpace), "the request")
	if err != nil {
		return r, err
	}
	if err = f.only("the request", fieldAfter, fieldMax); err != nil {
		return r, err
	}
	if f.has(fieldAfter) {
		if r.After, err = text("after", f.raw[fieldAfter]); err != nil {
			return r, err
		}
		if r.After != "" && !replication.ValidKey(r.After) {
			return r, badRequest("field \"after\": %q is not a key", clip(r.After))
		}
	}
	if f.has(fieldMax) {
		r.Max, err = parseMax(f.raw[fieldMax])
	}
	return r, err
}

func parseMax(raw string) (int, *replication.Error) {
	if kindOf(raw) != "number" {
		return 0, wantField("max", "number", raw)
	}
	enc, err := appendInteger(nil, typeUint16, raw)
	if err != nil {
		return 0, within(`field "max"`, err)
	}
	return int(enc[0]) | int(enc[1])<<8, nil
}

const typeUint16 wire.ValueType = 3

// AppendListing appends states, each as the put that would make it, at most
// sizeMax bytes unless a single state is larger. If states are left, "after" is
// the key to continue after.
func AppendListing(b []byte, l *replication.Listing, sizeMax int) []byte {
	start := len(b)
	b = appendPosition(b, l.Epoch, l.Seq)
	b = append(b, `,"states":[`...)
	after := l.After
	const tail = len(`],"after":""}`) + replication.KeyTokensMax*(replication.TokenMax+1)
	for i := range l.States {
		before := len(b)
		b = comma(b, i)
		b = appendPut(b, &l.States[i])
		if i > 0 && len(b)-start+tail > sizeMax {
			b = b[:before]
			after = l.States[i-1].Desc.Key
			break
		}
	}
	b = append(b, ']')
	b = appendTextField(b, "after", after)
	return append(b, '}')
}

func appendPut(b []byte, s *replication.Listed) []byte {
	d := s.Desc
	b = append(b, `{"op":"put","key":`...)
	b = appendString(b, d.Key)
	b = append(b, `,"message":`...)
	b = appendBytesText(b, d.Message)
	if len(d.Farewell) > 0 {
		b = append(b, `,"farewell":`...)
		b = appendBytesText(b, d.Farewell)
	}
	b = append(b, `,"access":`...)
	b = appendAccess(b, d.Access)
	b = append(b, `,"audience":`...)
	b = appendAudience(b, d.Audience)
	if d.Priority > 1 {
		b = append(b, `,"priority":`...)
		b = strconv.AppendUint(b, uint64(d.Priority), 10)
	}
	b = appendLod(b, d.Details)
	b = append(b, `,"values":[`...)
	for i := range d.Values {
		b = comma(b, i)
		b = appendPutValue(b, s, i)
	}
	return append(b, "]}"...)
}

func appendPutValue(b []byte, s *replication.Listed, i int) []byte {
	v := &s.Desc.Values[i]
	b = append(b, '{')
	if v.Name != "" {
		b = append(b, `"name":`...)
		b = appendString(b, v.Name)
		b = append(b, ',')
	}
	b = append(b, `"type":`...)
	b = appendString(b, v.Type.String())
	b = append(b, `,"value":`...)
	if s.IsNull(i) {
		b = append(b, "null"...)
	} else {
		b = AppendValue(b, v.Type, s.Values.Value(i))
	}
	if v.Precision != 0 {
		b = append(b, `,"precision":`...)
		b = appendJSONFloat(b, v.Precision, 64)
	}
	if v.Nullable {
		b = append(b, `,"nullable":true,"null":`...)
		b = AppendValue(b, v.Type, v.Substitute())
	}
	return append(b, '}')
}

// appendBytesText appends a message as text if it is some.
func appendBytesText(b, message []byte) []byte {
	if !utf8.Valid(message) {
		return appendBase64(b, prefixBase64, message)
	}
	s := string(message)
	if strings.HasPrefix(s, prefixBase64) || strings.HasPrefix(s, prefixText) {
		s = prefixText + s
	}
	return appendString(b, s)
}

func appendAccess(b []byte, a replication.Access) []byte {
	switch a.Kind {
	case replication.AccessReadWrite:
		return append(b, `"read-write"`...)
	case replication.AccessWriters:
		b = append(b, `{"writers":`...)
		b = appendTokens(b, a.Writers)
		return append(b, '}')
	}
	return append(b, `"read-only"`...)
}

func appendAudience(b []byte, a replication.Audience) []byte {
	switch a.Kind {
	case replication.AudienceAll:
		return append(b, `{"all":true}`...)
	case replication.AudienceListed:
		return appendListed(b, a)
	case replication.AudienceAllBut:
		b = append(b, `{"all":true,"except":`...)
		b = appendListed(b, a)
		return append(b, '}')
	}
	return append(b, `{"all":false}`...)
}

func appendListed(b []byte, a replication.Audience) []byte {
	b = append(b, `{"groups":`...)
	b = appendTokens(b, a.Groups)
	b = append(b, `,"clients":`...)
	b = appendTokens(b, a.Clients)
	return append(b, '}')
}

func appendTokens(b []byte, all []string) []byte {
	b = append(b, '[')
	for i, s := range all {
		b = comma(b, i)
		b = appendString(b, s)
	}
	return append(b, ']')
}
