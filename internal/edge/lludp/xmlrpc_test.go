package lludp

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

func callText(members string) string {
	return `<?xml version="1.0"?><methodCall><methodName>login_to_simulator</methodName><params><param><value><struct>` + members +
		`</struct></value></param></params></methodCall>`
}

func TestParseCall(t *testing.T) {
	c, err := parseCall([]byte(callText(`
	 <member><name>first</name><value><string>Ada &amp; Co</string></value></member>
	 <member><name>last</name><value>Byron</value></member>
	 <member><name>agree_to_tos</name><value><boolean>1</boolean></value></member>
	 <member><name>token</name><value><string/></value></member>
	 <member><name>options</name><value><array><data><value><string>inventory-root</string></value><value>x</value></data></array></value></member>
	 <member><name>inner</name><value><struct><member><name>first</name><value><string>Eve</string></value></member></struct></value></member>`)))
	want := call{"login_to_simulator", map[string]string{"first": "Ada & Co", "last": "Byron", "agree_to_tos": "1", "token": ""}}
	if err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("the call is %q, %v; want %q", c, err, want)
	}
	member := `<member><name>a</name><value>b</value></member>`
	for name, x := range map[string]struct {
		text string
		want error
	}{
		"a document type, as entity bombs have": {`<!DOCTYPE x [<!ENTITY a "b">]>` + callText(member), errDirective},
		"an unknown entity":                     {callText(`<member><name>a</name><value>&a;</value></member>`), errForm},
		"too many elements":                     {callText(strings.Repeat(member, 400)), errBounds},
		"too deep":                              {callText(strings.Repeat("<value>", 20)), errBounds},
		"too long a value":                      {callText(`<member><name>a</name><value>` + strings.Repeat("x", textMax+1) + `</value></member>`), errBounds},
		"too long":                              {callText(member) + strings.Repeat(" ", requestMax), errBounds},
		"nothing":                               {"", errForm},
		"half of one":                           {callText(member)[:150], errForm},
		"another form":                          {"<a></a>", errForm},
		"no struct":                             {`<methodCall><methodName>x</methodName></methodCall>`, errForm},
	} {
		if _, err := parseCall([]byte(x.text)); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
}

// FuzzParseCall: what is parsed keeps to the bounds, and nothing panics.
func FuzzParseCall(f *testing.F) {
	f.Add([]byte(callText(`<member><name>first</name><value><string>Ada</string></value></member>`)))
	f.Add([]byte(callText(`<member><name>o</name><value><array><data><value>x</value></data></array></value></member>`)))
	f.Fuzz(func(t *testing.T, p []byte) {
		c, err := parseCall(p)
		if err != nil {
			return
		}
		if c.method == "" || len(c.members) > elementsMax {
			t.Errorf("method %q with %d members", c.method, len(c.members))
		}
		for name, value := range c.members {
			if len(name) > textMax || len(value) > textMax {
				t.Errorf("a member of %d and %d bytes", len(name), len(value))
			}
		}
	})
}

func TestAnswer(t *testing.T) {
	got := string(answer(member{"login", "true"}, member{"port", 7}, member{"name", "<&>"}, member{"list", []any{[]member{{"id", "x"}}, "y"}}))
	want := `<?xml version="1.0" encoding="UTF-8"?>
<methodResponse><params><param><value><struct>` +
		`<member><name>login</name><value><string>true</string></value></member><member><name>port</name><value><int>7</int></value></member>` +
		`<member><name>name</name><value><string>&lt;&amp;&gt;</string></value></member><member><name>list</name><value><array><data><value><struct>` +
		`<member><name>id</name><value><string>x</string></value></member></struct></value><value><string>y</string></value></data></array></value></member>` +
		"</struct></value></param></params></methodResponse>\n"
	if got != want {
		t.Errorf("the answer is\n%s\nwant\n%s", got, want)
	}
	wellFormed(t, []byte(got))
}

func TestLLSD(t *testing.T) {
	got := llsd([]member{{"id", 7}, {"a<b", "c&d"}, {"events", []any{}}, {"list", []any{[]member{}}}})
	want := `<llsd><map><key>id</key><integer>7</integer><key>a&lt;b</key><string>c&amp;d</string><key>events</key><array></array><key>list</key><array><map></map></array></map></llsd>` + "\n"
	if string(got) != want {
		t.Errorf("LLSD is\n%s, want\n%s", got, want)
	}
	wellFormed(t, got)
	for body, want := range map[string]bool{
		"<llsd><map><key>ack</key><undef/><key>done</key><boolean>true</boolean></map></llsd>":  true,
		"<llsd><map><key>done</key>\n <boolean>1</boolean></map></llsd>":                        true,
		"<llsd><map><key>ack</key><undef/><key>done</key><boolean>false</boolean></map></llsd>": false,
		"<llsd><map><key>done</key><boolean/></map></llsd>":                                     false,
		"": false,
	} {
		if got := wantsNoMore([]byte(body)); got != want {
			t.Errorf("%s: %t, want %t", body, got, want)
		}
	}
}

func wellFormed(t *testing.T, p []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(p)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
}

// FuzzEscape: any text in an answer comes back, or as the character that stands for what XML cannot have.
func FuzzEscape(f *testing.F) {
	f.Add("a<&>\"'")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > textMax/8 || strings.ContainsRune(s, '\r') {
			return
		}
		c, err := parseCall([]byte(callText(fmt.Sprintf("<member><name>a</name><value>%s</value></member>", escape(nil, s)))))
		if err != nil || c.members["a"] != strings.ToValidUTF8(c.members["a"], "") {
			t.Errorf("%q is %q, %v", s, c.members["a"], err)
		}
	})
}
