package auth

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

var now = time.Unix(1_700_000_000, 0)

// Two key pairs, the same in every run.
var (
	keyA = ed25519.NewKeyFromSeed([]byte(strings.Repeat("a", 32)))
	keyB = ed25519.NewKeyFromSeed([]byte(strings.Repeat("b", 32)))
)

func public(k ed25519.PrivateKey) []byte {
	text, err := EncodePublic(k.Public().(ed25519.PublicKey))
	if err != nil {
		panic(err)
	}
	return text
}

func keys(t testing.TB, private ...ed25519.PrivateKey) *Keys {
	t.Helper()
	var text []byte
	for _, k := range private {
		text = append(text, public(k)...)
	}
	k, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sign makes a token of JSON that is as bad as a test wants.
func sign(k ed25519.PrivateKey, header, claims string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(k, []byte(text)))
}

const eddsa = `{"alg":"EdDSA","typ":"JWT"}`

func TestIssueAndVerify(t *testing.T) {
	c := Claims{Client: "alice", Space: "arena", Groups: []string{"red", "scouts"}, Write: true, Expires: now.Add(time.Minute), ID: "1"}
	token, err := Issue(keyA, c, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []*Keys{keys(t, keyA), keys(t, keyB, keyA)} {
		if got, reason := k.Verify(now, []byte(token)); reason != None || !reflect.DeepEqual(got, c) {
			t.Errorf("verified as %+v, %v", got, reason)
		}
	}
	if _, reason := keys(t, keyB).Verify(now, []byte(token)); reason != BadKey {
		t.Errorf("with another key: %v", reason)
	}
}

func TestVerify(t *testing.T) {
	k := keys(t, keyA)
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	good := fmt.Sprintf(`{"sub":"alice","jti":"1","exp":%d,"dnp":{"space":"arena"}}`, at(time.Minute))
	with := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the claims", old)
		}
		return sign(keyA, eddsa, strings.Replace(good, old, new, 1))
	}
	exp := fmt.Sprintf(`"exp":%d`, at(time.Minute))
	token := with("alice", "alice")
	parts := strings.Split(token, ".")
	mac := hmac.New(sha256.New, keyA.Public().(ed25519.PublicKey))
	hs := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + parts[1]
	mac.Write([]byte(hs))
	for _, c := range []struct {
		why, token string
		want       Reason
	}{
		{"write is allowed by default", token, None},
		{"exp a day ahead", with(exp, fmt.Sprintf(`"exp":%d`, at(24*time.Hour))), None},
		{"exp a day and a second ahead", with(exp, fmt.Sprintf(`"exp":%d`, at(24*time.Hour+time.Second))), TooLong},
		{"exp is now", with(exp, fmt.Sprintf(`"exp":%d`, at(0))), Expired},
		{"no exp", with(exp, `"x":1`), BadToken},
		{"exp as text", with(exp, `"exp":"soon"`), BadToken},
		{"no jti", with(`"jti":"1"`, `"x":1`), BadToken},
		{"a long jti", with(`"jti":"1"`, `"jti":"`+strings.Repeat("x", 129)+`"`), BadToken},
		{"no dnp", with(`"dnp"`, `"dmp"`), BadToken},
		{"nbf within the leeway", with(exp, fmt.Sprintf(`%s,"nbf":%d`, exp, at(5*time.Second))), None},
		{"nbf beyond the leeway", with(exp, fmt.Sprintf(`%s,"nbf":%d`, exp, at(6*time.Second))), NotYet},
		{"no client", with("alice", ""), BadClaims},
		{"a client that would be two tokens of a subject", with("alice", "a.b"), BadClaims},
		{"a wildcard", with("alice", "*"), BadClaims},
		{"a reserved space", with("arena", "_arena"), BadClaims},
		{"an invalid space", with("arena", ">"), BadClaims},
		{"a bad group", with(`"space"`, `"groups":["a b"],"space"`), BadClaims},
		{"too many groups", with(`"space"`, `"groups":["a"`+strings.Repeat(`,"a"`, GroupsMax)+`],"space"`), BadClaims},
		{"another algorithm, with the public key as its key", hs + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), BadKey},
		{"no algorithm", base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", BadKey},
		{"an unknown kid", sign(keyA, `{"alg":"EdDSA","kid":"x"}`, good), BadKey},
		{"a kid that is not text", sign(keyA, `{"alg":"EdDSA","kid":{"a":1}}`, good), BadKey},
		{"the kid of the key", sign(keyA, `{"alg":"EdDSA","kid":"`+KeyID(keyA.Public().(ed25519.PublicKey))+`"}`, good), None},
		{"no signature", parts[0] + "." + parts[1] + ".", BadKey},
		{"other claims under the signature", parts[0] + "." + strings.Split(with("alice", "mallory"), ".")[1] + "." + parts[2], BadKey},
		{"two parts", parts[0] + "." + parts[1], BadToken},
		{"not base64", "ey!." + parts[1] + "." + parts[2], BadToken},
		{"not JSON", sign(keyA, eddsa, "{"), BadToken},
		{"too large", token + strings.Repeat("A", TokenMax), BadToken},
	} {
		if _, got := k.Verify(now, []byte(c.token)); got != c.want {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
	claims, _ := k.Verify(now, []byte(with(`"space"`, `"write":false,"space"`)))
	if claims.Write || claims.Client != "alice" {
		t.Errorf("write:false is %+v", claims)
	}
}

func TestMessage(t *testing.T) {
	framed := string(AppendMessage(nil, "token"))
	longest := "ey" + strings.Repeat("A", 1348) // 1,350 bytes, as INTERFACES.md says
	for _, c := range []struct {
		message, token string
		ok             bool
	}{
		{framed, "token", true},
		{"DNPA\x01\x05\x00token", "token", true},
		{framed + "x", "", false},
		{framed[:len(framed)-1], "", false},
		{"DNPA\x02\x05\x00token", "", false},
		{"DNPA\x01\x00\x00", "", false},
		{"eyJ.a.b", "eyJ.a.b", true},
		{"hello", "", false},
		{longest, longest, true},
		{longest + "A", "", false},
		{string(AppendMessage(nil, longest)), longest, true},
		{string(AppendMessage(nil, longest+"A")), "", false},
		{"", "", false},
	} {
		if token, ok := Token([]byte(c.message)); ok != c.ok || ok && string(token) != c.token {
			t.Errorf("%.20q: %q, %v", c.message, token, ok)
		}
	}
}

func TestParseKeys(t *testing.T) {
	private, err := EncodePrivate(keyA)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := ParsePrivate(private); err != nil || !k.Equal(keyA) {
		t.Errorf("a private key comes back as %v, %v", k, err)
	}
	named := strings.Replace(string(public(keyA)), "\n", "\nKid: main\n\n", 1)
	if k, err := ParseKeys([]byte(named)); err != nil || k.keys[0].id != "main" {
		t.Errorf("a key with a name: %+v, %v", k, err)
	}
	for _, c := range []struct{ text, want string }{
		{"", "contains no key"},
		{string(private), "private key"},
		{"hello", "outside of PEM"},
		{string(public(keyA)) + "rest", "outside of PEM"},
		{strings.Repeat(string(public(keyA)), keysMax+1), "at most 8"},
		{strings.ReplaceAll(string(public(keyA)), "PUBLIC KEY", "CERTIFICATE"), "want a PUBLIC KEY"},
		{strings.Replace(string(public(keyA)), "MCow", "AAAA", 1), "not an Ed25519"},
		{strings.Repeat("#", KeyFileMax+1), "more than"},
	} {
		if _, err := ParseKeys([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.30q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestReplay(t *testing.T) {
	r := &Replay{Max: 3}
	use := func(why string, at time.Duration, client, id, from string, want Reason) {
		t.Helper()
		c := &Claims{Client: client, ID: id, Expires: now.Add(time.Minute)}
		if at > 0 {
			c.Expires = now.Add(at + time.Minute)
		}
		if got := r.Use(now.Add(at), c, netip.MustParseAddr(from)); got != want {
			t.Fatalf("%s: %v, want %v", why, got, want)
		}
	}
	use("first use", 0, "a", "1", "192.0.2.1", None)
	use("the same client resumes", 0, "a", "1", "192.0.2.1", None)
	use("another client is refused", 0, "a", "1", "192.0.2.2", Replayed)
	use("ids of two clients may be equal", 0, "b", "1", "192.0.2.2", None)
	use("a client in a /64", 0, "c", "1", "2001:db8::1", None)
	use("the same client at another address", 0, "c", "1", "2001:db8::2", None)
	use("another /64 is refused", 0, "c", "1", "2001:db8:0:1::1", Replayed)
	use("a full Replay forgets the first to expire", time.Second, "d", "1", "192.0.2.4", None)
	if r.Len() != 3 || r.Forgotten != 1 {
		t.Fatalf("%d remembered, %d forgotten", r.Len(), r.Forgotten)
	}
	use("expired tokens are forgotten", time.Minute+time.Second/2, "e", "1", "192.0.2.5", None)
	if r.Len() != 2 || r.Forgotten != 1 {
		t.Fatalf("%d remembered, %d forgotten", r.Len(), r.Forgotten)
	}
}

// FuzzVerify looks for messages that panic, or that pass without a valid signature.
func FuzzVerify(f *testing.F) {
	k := keys(f, keyA)
	good, _ := Issue(keyA, Claims{Client: "alice", Space: "arena", Expires: now.Add(time.Minute), ID: "1"}, now)
	f.Add([]byte(good))
	f.Add(AppendMessage(nil, good))
	f.Add([]byte(sign(keyB, eddsa, `{}`)))
	f.Add([]byte("ey.ey.ey"))
	f.Fuzz(func(t *testing.T, message []byte) {
		token, ok := Token(message)
		if !ok {
			return
		}
		if c, reason := k.Verify(now, token); reason == None && string(token) != good {
			text, _ := json.Marshal(c)
			t.Fatalf("%q passes as %s", token, text)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	k := keys(b, keyA)
	good, _ := Issue(keyA, Claims{Client: "alice", Space: "arena", Expires: now.Add(time.Minute), ID: "1"}, now)
	bad := good[:len(good)-4] + "AAAA"
	for _, token := range []string{good, bad} {
		b.Run(map[bool]string{true: "good", false: "forged"}[token == good], func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				k.Verify(now, []byte(token))
			}
		})
	}
}
