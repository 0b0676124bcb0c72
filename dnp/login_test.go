package dnp

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	letMeIn = "04 0000 6c6574206d6520696e"
	later   = "04 0000 6c61746572"
	wrong   = "04 0000 6f70656e20736573616d65"
)

func TestLogin(t *testing.T) {
	s := newTest(t, loginConfig())
	s.recv("00 0100 0000")
	s.want("the only answer, and shorter than the request", "01 00 0000")
	s.recv("06 0000 00", "05 0000 0000 00 0100 4d 0100 01 2a", "04 0100 61", "03 61", "07 0080")
	s.want("nothing else is answered before the login")
	s.recv(letMeIn)
	s.events("the login is consumed", "connected")
	s.want("it is acknowledged, and the peer is asked whether it speaks command 10", "06 0000 00", "0a 0000 00")
	if s.c.Data() != "let me in" {
		t.Fatalf("the connection has %v of the login", s.c.Data())
	}
	s.recv(letMeIn, "04 0100 61")
	s.want("a repeat is only acknowledged", "06 0000 00", "06 0100 00")
	s.events("later messages are passed on", "message 1 a")
	s.recv("06 0000 00")
	if !s.c.SpeaksLong() {
		t.Fatal("a peer that acknowledges command 10 understands it")
	}
}

func TestLoginRefused(t *testing.T) {
	s := newTest(t, loginConfig())
	s.recv("00 0100 0000", wrong)
	if len(s.sent) != 2 || !strings.HasPrefix(s.sent[1], "050000") {
		t.Fatalf("sent %v, want a greeting: the login may be forged, and the peer play elsewhere", s.sent)
	}
	id := s.sent[1][6:10]
	s.sent = nil
	s.recv("07"+id, wrong)
	s.want("a peer that proved its address is told", "02")
	s.recv("04 0000 78")
	s.want("a login that is shorter than a greeting is not answered")
	s.events("the owner is not told")
	s.dropped("counted", DropLoginRefused, 3)
	s.e.RefuseLogin(peerAddr, &s.recorder)
	s.want("nor is one that had to wait, before it is repeated")
}

func TestLoginWaits(t *testing.T) {
	s := newTest(t, loginConfig())
	s.recv("00 0100 0000", later, later)
	s.want("while the login is judged nothing is acknowledged, so the peer repeats it", "01 00 0000")
	s.dropped("counted", DropLoginWaits, 2)
	c := s.e.LogIn(s.now, peerAddr, "data", &s.recorder)
	s.pump()
	s.events("then it is let in", "connected")
	s.want("and its login acknowledged", "06 0000 00", "0a 0000 00")
	if c == nil || c.Data() != "data" || s.e.LogIn(s.now, peerAddr, "data", &s.recorder) != nil {
		t.Fatal("one connection, with what its owner says of it")
	}
	s.e.RefuseLogin(peerAddr, &s.recorder)
	s.want("a late refusal does not affect a connection")
}

// TestLoginWaitsForRoom: a login that comes while the owner does not know whether there is room is
// neither judged nor refused.
func TestLoginWaitsForRoom(t *testing.T) {
	cfg, verdict := loginConfig(), AdmitAccept
	cfg.Admit = func(netip.AddrPort) AdmitVerdict { return verdict }
	s := newTest(t, cfg)
	s.recv("00 0100 0000")
	s.want("there is room", "01 00 0000")
	verdict = AdmitWait
	s.recv(letMeIn, wrong)
	if s.e.LogIn(s.now, peerAddr, "data", &s.recorder) != nil {
		t.Error("an answer that comes meanwhile lets the peer in")
	}
	s.want("nothing is acknowledged, so the peer repeats its login")
	s.dropped("counted", DropLoginWaits, 3)
	verdict = AdmitAccept
	s.recv(letMeIn)
	s.events("then it is judged", "connected")
}

// TestLoginLate: a repeat of a login that arrives after the session must not begin a new
// one.
func TestLoginLate(t *testing.T) {
	for reason, counted := range map[CloseReason]DropReason{CloseKicked: DropStranger, CloseUncertain: DropLate} { // the first is told its end again
		cfg := loginConfig()
		cfg.Gate = gate(t, admit.Config{})
		s := newTest(t, cfg)
		s.recv("00 0100 0000", letMeIn)
		s.c.Close(reason)
		s.pump()
		s.recv(letMeIn)
		s.events("it came and went", "connected", "closed "+reason.String())
		s.dropped("the repeat is late", counted, 1)
		s.recv("00 0100 0000", letMeIn)
		s.events("after a request it is meant", "connected")
	}
}

func TestGate(t *testing.T) {
	cfg := loginConfig()
	cfg.Gate = gate(t, admit.Config{AddressRate: 1})
	s := newTest(t, cfg)
	for range 10 {
		s.recv("00 0100 0000")
	}
	s.dropped("requests take nothing, because logins follow", DropAddressRate, 0)
	s.recv(wrong, wrong, wrong, wrong)
	s.dropped("four logins at once", DropLoginRefused, 4)
	s.recv(letMeIn)
	s.events("the fifth is greeted")
	s.wait(time.Second)
	s.recv(letMeIn)
	s.events("one second is one more", "connected")
}

// flooded returns a Gate that has let the only login of a stranger through.
func flooded(t *testing.T) *admit.Gate {
	g := gate(t, admit.Config{LoginRate: 1e-9})
	g.Judge(epoch, netip.MustParseAddrPort("203.0.113.1:1"), admit.Login)
	return g
}

// TestLoginGreeted: while most logins must be forged, one is looked at when its address is
// proven.
func TestLoginGreeted(t *testing.T) {
	cfg := loginConfig()
	cfg.Gate = flooded(t)
	s := newTest(t, cfg)
	s.recv("00 0100 0000")
	s.want("a request is answered as ever", "01 00 0000")
	s.recv(letMeIn)
	if len(s.sent) != 1 || !strings.HasPrefix(s.sent[0], "050000") || len(s.sent[0]) > 2*len(unhex(letMeIn)) || s.e.unproven.n != 0 {
		t.Fatalf("sent %v, %d slots are taken; want a greeting no longer than the login, and no slot", s.sent, s.e.unproven.n)
	}
	id := s.sent[0][6:10]
	s.sent = nil
	s.recv("06 0000 00", "08 0080", letMeIn)
	s.events("an answer that can be guessed proves nothing")
	s.sent = nil
	s.recv("08" + id)
	s.want("the answer is not answered")
	s.recv(letMeIn)
	s.events("now the login counts", "connected")
	s.want("the second greeting may be lost, so it is a command; the link of the first ends", "06 0000 00",
		"05 0100"+s.after("", id, 1)+"01 0100 68 0000", "0a 0200 00", "08"+id, "08"+id)
	if s.e.unproven.n != 0 {
		t.Error("the slot is still taken")
	}
	s.c.loss = lossEstimate{weight: lossMemory}
	s.recv("06 0100 00", "06 0200 00")
	s.want("as does that of the second, when the peer has it", s.after("08", id, 1))
}

// TestShortLoginIsNotGreeted: a greeting is never longer than the login that it answers, because anybody can send
// logins in the name of a third party.
func TestShortLoginIsNotGreeted(t *testing.T) {
	cfg := loginConfig()
	cfg.Gate = flooded(t)
	s := newTest(t, cfg)
	s.recv("00 0100 0000")
	s.want("a request is answered as ever", "01 00 0000")
	for size := range 8 {
		s.recv("04 0000" + strings.Repeat("61", size))
		s.want(fmt.Sprintf("a login message of %d bytes is shorter than a greeting", size))
	}
	s.recv("04 0000" + strings.Repeat("61", 8))
	if len(s.sent) != 1 || len(s.sent[0]) != 2*11 {
		t.Fatalf("a login of 11 bytes is answered with %v, want one greeting of 11 bytes", s.sent)
	}
}

// TestGreetingsProcessed: a peer that answered all greetings is not sent them again. It would
// keep the repeats for a lap of the numbers, and then take one for a command.
func TestGreetingsProcessed(t *testing.T) {
	cfg := loginConfig()
	cfg.Gate = flooded(t)
	s := newTest(t, cfg)
	s.recv(letMeIn)
	s.wait(greetingPause)
	s.recv(letMeIn)
	if len(s.sent) != 2 || s.sent[1][:6] != "050100" {
		t.Fatalf("sent %v, want both greetings", s.sent)
	}
	first, second := s.sent[0][6:10], s.sent[1][6:10]
	s.sent = nil
	s.recv("07"+second, "07"+first) // in any order
	s.recv(letMeIn)
	s.events("the login counts", "connected")
	s.c.loss = lossEstimate{weight: lossMemory}
	s.want("the commands go on behind the greetings", "06 0000 00", "0a 0200 00", "08"+first, "08"+first, "08"+second, "08"+second)
}

// TestLoggedBeginsGreeted: the first commands of a logged connection are greetings, because those
// of another Endpoint, which a forged login reached, may take their numbers.
func TestLoggedBeginsGreeted(t *testing.T) {
	cfg := loginConfig()
	cfg.Logged = true
	s := newTest(t, cfg)
	s.recv(letMeIn)
	s.store()
	var greeted []string
	for _, p := range s.sent {
		if strings.HasPrefix(p, "05") {
			greeted = append(greeted, p[:6]+p[10:])
		}
	}
	if strings.Join(greeted, " ") != "050000010100680000 050100010100680000" {
		t.Errorf("sent %v, want two greetings", s.sent)
	}
}

// TestGreetedOnce: a greeting that was answered lets one refused login be looked at, because
// answers can be guessed.
func TestGreetedOnce(t *testing.T) {
	cfg := loginConfig()
	cfg.Gate = flooded(t)
	asked := 0
	cfg.Login = func(time.Time, netip.AddrPort, []byte) (LoginVerdict, any) { asked++; return LoginRefuse, nil }
	s := newTest(t, cfg)
	s.recv(letMeIn)
	s.recv("07" + s.sent[0][6:10])
	for range 5 {
		s.recv(letMeIn)
	}
	if asked != 1 || s.e.unproven.n != 0 {
		t.Errorf("%d logins were looked at, want one; %d slots are taken", asked, s.e.unproven.n)
	}
}

// TestGreetingsUnderFlood: what other addresses ask for in vain does not keep a peer from an
// answer to its request, or from its proof.
func TestGreetingsUnderFlood(t *testing.T) {
	cfg := loginConfig()
	cfg.Gate = gate(t, admit.Config{LoginRate: 1, AddressRate: 1e-9, Rate: 1e-9})
	s := newTest(t, cfg)
	request := unhex("00 0100 0000")
	for i := range 500 { // in its own network
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), uint16(1000+i))
		for _, p := range [][]byte{request, unhex(letMeIn), unhex("07 0080")} {
			s.e.Receive(s.now, from, p, s)
		}
	}
	s.pump()
	s.sent = nil
	s.recv("00 0100 0000")
	s.want("the request is answered", "01 00 0000")
	s.recv(letMeIn)
	id := s.sent[0][6:10]
	s.recv("07"+id, letMeIn)
	s.events("the login counts", "connected")
}

// after returns LinkDown, or another command, for the n-th id after one.
func (s *connTest) after(command, id string, n byte) string {
	first := helloIDs{first: wire.LinkID(binary.LittleEndian.Uint16(unhex(id)))}
	return command + hex.EncodeToString(binary.LittleEndian.AppendUint16(nil, uint16(first.id(n))))
}

// TestGreetingExpires: a peer that answers a greeting and does not log in is forgotten, as is
// the greeting.
func TestGreetingExpires(t *testing.T) {
	cfg := loginConfig()
	cfg.Gate = flooded(t)
	s := newTest(t, cfg)
	s.recv(letMeIn)
	id := s.sent[0][6:10]
	s.recv("08" + id)
	if s.e.unproven.n != 1 {
		t.Fatalf("%d slots are taken, want one", s.e.unproven.n)
	}
	s.sent = nil
	s.wait(unprovenLife)
	s.want("nothing is sent to it")
	if s.e.unproven.n != 0 {
		t.Error("it is still remembered")
	}
	s.wait(2 * statelessWindow)
	s.recv("08" + id)
	if s.e.unproven.n != 0 {
		t.Error("a late answer proves something")
	}
	s.sent = nil
	s.recv(letMeIn)
	id = s.sent[0][6:10]
	s.wait(statelessWindow)
	s.recv("08" + id)
	if s.e.unproven.n != 1 {
		t.Errorf("an answer after %v proves nothing", statelessWindow)
	}
}

func TestStateless(t *testing.T) {
	cfg := proofConfig(ProbePing)
	cfg.Gate = gate(t, admit.Config{StatefulRate: 1e-9})
	s := newTest(t, cfg)
	s.recv("00 0100 0000")
	s.events("the one that the bucket begins with is remembered")
	s.recv("06 0000 00")
	s.recv("02")
	s.wait(4 * time.Second)
	s.sent, s.happen = nil, nil
	for _, answer := range []string{"07", "08"} {
		s.recv("00 0100 0000")
		if len(s.sent) != 2 || len(s.sent[1]) != 22 || s.e.unproven.n != 0 {
			t.Fatalf("sent %v with %d remembered, want an acknowledgement and a hello, and no slot taken", s.sent, s.e.unproven.n)
		}
		id := s.sent[1][6:10]
		s.sent = nil
		s.recv("06 0000 00", "04 0000 61", "07 3412")
		s.events("an answer that can be guessed proves nothing")
		s.wait(statelessWindow)
		s.recv(answer + id)
		s.events("the LinkId of the hello does, for a while", "connected")
		s.recv("02")
		s.wait(4 * time.Second)
		s.events("it left", "closed peer")
		s.sent = nil
	}
	s.recv("00 0100 0000")
	id := s.sent[1][6:10]
	s.wait(2 * statelessWindow)
	s.recv("07" + id)
	s.events("but not after ten seconds")
	if s.e.stats.Stateless != 3 {
		t.Fatalf("counted %d", s.e.stats.Stateless)
	}
}

// TestMayProve asks which datagrams of a peer that was sent a hello may belong to its attempt to connect. Answers to
// the hello do for the time in which it can be answered.
func TestMayProve(t *testing.T) {
	s, id := acknowledgedStateless(t)
	for p, want := range map[string]bool{
		"00 0100 0000": true, "06 0000 00": true, "06 0800 00": false, "04 0000 6d": true, "04 0100 6d": false,
		"07" + id: true, "08" + id: true, "07 0000": false, "09 0100 0000": false, "03 6d": false,
	} {
		if s.e.MayProve(peerAddr, unhex(p)) != want {
			t.Errorf("%s may prove: %v, want %v", p, !want, want)
		}
	}
	s.wait(statelessWindow)
	if !s.e.MayProve(peerAddr, unhex("07"+id)) {
		t.Error("the hello of the epoch before is forgotten")
	}
	s.wait(statelessWindow)
	s.recv("02") // the endpoint learns the time
	if s.e.MayProve(peerAddr, unhex("07"+id)) {
		t.Error("an old hello is not forgotten")
	}
}

// acknowledgedStateless answers a request without a slot. The peer acknowledged the hello and has
// not answered it. id is the hex text of the LinkId of the hello.
func acknowledgedStateless(t *testing.T) (s *connTest, id string) {
	cfg := proofConfig(ProbePing)
	cfg.Gate = gate(t, admit.Config{StatefulRate: 1e-9})
	s = newTest(t, cfg)
	s.e.Receive(s.now, servAddr, unhex("0001000000"), &s.recorder) // takes the only token
	s.sent = nil
	s.recv("00 0100 0000")
	id = s.sent[1][6:10]
	s.sent = nil
	s.recv("06 0000 00")
	return s, id
}

// TestStatelessLoss loses the answer to a hello after its acknowledgement.
func TestStatelessLoss(t *testing.T) {
	s, first := acknowledgedStateless(t)
	s.wait(300 * time.Millisecond)
	s.events("an acknowledgement can be guessed")
	for _, d := range s.sent {
		if d[:2] == "05" {
			t.Fatal("the answer may be on its way")
		}
	}
	s.sent = nil
	s.wait(300 * time.Millisecond)
	again := ""
	for _, d := range s.sent {
		if d[:2] == "05" {
			again = d
		}
	}
	if len(again) != 22 || again[2:6] != "0100" || again[6:10] == first {
		t.Fatalf("sent %v, want a hello with another number and id than %s", s.sent, first)
	}
	s.recv("07" + again[6:10])
	s.events("whose answer is as good", "connected")
}

// TestStatelessRequestAgain: a request that was on its way twice does not spend the first hello.
func TestStatelessRequestAgain(t *testing.T) {
	s, id := acknowledgedStateless(t)
	s.recv("00 0100 0000")
	for _, d := range s.sent {
		if d[:2] == "05" {
			t.Fatal("the answer to the first hello may be on its way")
		}
	}
	s.recv("07" + id)
	s.events("the answer to the first hello", "connected")
}

// TestStatelessOfAnother: the answer to a hello counts from one address and port only.
func TestStatelessOfAnother(t *testing.T) {
	cfg := proofConfig(ProbePing)
	cfg.Gate = gate(t, admit.Config{StatefulRate: -1})
	cfg.UnprovenMax = 2
	s := newTest(t, cfg)
	s.e.Receive(s.now, servAddr, unhex("0001000000"), &s.recorder)
	s.sent = nil
	s.recv("00 0100 0000") // the table is half full
	id := s.sent[1][6:10]
	s.e.Receive(s.now, servAddr, unhex("02"), &s.recorder)
	s.note(s.e.Receive(s.now, servAddr, unhex("07"+id), &s.recorder))
	neighbour := netip.AddrPortFrom(peerAddr.Addr(), peerAddr.Port()+1)
	s.note(s.e.Receive(s.now, neighbour, unhex("07"+id), &s.recorder))
	s.events("from elsewhere it proves nothing")
	s.recv("07" + id)
	s.events("it is the address that is proven", "connected")
}

func TestBadRequests(t *testing.T) {
	s := newTest(t, proofConfig(ProbePing))
	s.recv("00", "00 0100", "00 0000", "00 0100 0000 00", "00 0200 0000", "00 2100"+strings.Repeat("0000", 33), "00 ffff 0000")
	s.want("a request that clients do not make is not answered")
	s.dropped("counted", DropBadRequest, 7)
	s.recv("00 2000" + strings.Repeat("0100", 31) + "0000")
	s.want("32 protocols are the most", "01 00 0000", "0a 0000 00")
}

func rateConfig(t *testing.T) Config {
	cfg := quiet()
	cfg.Rate = admit.Rate{Datagrams: 10, Bytes: 1000}
	cfg.Gate = gate(t, admit.Config{})
	return cfg
}

func TestRate(t *testing.T) {
	s := serve(t, rateConfig(t))
	for range 30 {
		s.recv("03 61")
	}
	s.dropped("two seconds of the limit pass at once", DropRate, 10)
	s.wait(100 * time.Millisecond)
	s.recv("03 61", "03 61")
	s.dropped("a tenth of a second is one more", DropRate, 11)
	s.wait(10 * time.Second)
	big := "03" + fmt.Sprintf("%0800d", 0)
	for range 6 {
		s.recv(big)
	}
	s.dropped("bytes count as well: 2000 are four of 401, and a bit", DropRate, 13)
}

// TestRateAnswers: a peer that gets many links has to answer for each, and is not limited.
func TestRateAnswers(t *testing.T) {
	cfg := rateConfig(t)
	s := serve(t, cfg)
	for range 200 {
		if err := s.c.Link(s.source("uint8"), true); err != nil {
			t.Fatal(err)
		}
	}
	s.pump()
	for i := range 200 {
		s.recv(fmt.Sprintf("06 %02x%02x 00", byte(i), i>>8), fmt.Sprintf("07 %02x80", byte(i)))
	}
	s.dropped("answers are free", DropRate, 0)
	for range 30 {
		s.recv("06 0000 00")
	}
	s.dropped("but only as many as were asked for", DropRate, 10)
}

// TestFlood: datagrams in the name of a peer, as many as one likes, cost it nothing that it says
// reliably: they may be forged.
func TestFlood(t *testing.T) {
	s := serve(t, rateConfig(t))
	if err := s.c.Send([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	s.pump()
	for n := range 30 {
		for i := range 100 {
			s.recv("03 61", "06 3005 00", fmt.Sprintf("04 %02x40 61", i))
		}
		s.sent, s.happen = nil, nil
		s.recv(fmt.Sprintf("04 %02x00 62", n))
		s.events("what it says comes through", fmt.Sprintf("message %d b", n))
		s.want("and is acknowledged", fmt.Sprintf("06 %02x00 00", n))
		if n == 2 {
			s.recv("06 0000 00")
		}
		s.wait(time.Second)
	}
	if s.e.stats.Drops[DropRate] < 8000 {
		t.Errorf("%d datagrams were dropped, want most", s.e.stats.Drops[DropRate])
	}
	if !s.c.Established() {
		t.Error("the connection ended")
	}
}

func TestSuspect(t *testing.T) {
	s := serve(t, quiet())
	rng := newRand(t)
	hits, first := 0, 0
	for i := range 20_000 {
		n := 5000 + rng.IntN(50_000) // not near the window, because the attacker guesses
		s.recv(fmt.Sprintf("04 %02x%02x 61", byte(n), n>>8))
		if s.wait(5 * time.Millisecond); s.e.stats.Alarms > 0 && first == 0 {
			first = i + 1
		}
	}
	for _, e := range s.happen {
		if e != "suspect" {
			hits++
		}
	}
	if first == 0 || first > 100 || hits > 0 {
		t.Fatalf("alarm after %d forged commands, %d delivered", first, hits)
	}
	if got := s.e.stats.Alarms; got != 2 {
		t.Fatalf("%d alarms in 100 s, want one a minute", got)
	}
}

// TestStatelessLate: the keyed hash changes between a stateless hello and its
// acknowledgement, and the answer counts all the same.
func TestStatelessLate(t *testing.T) {
	cfg := proofConfig(ProbePing)
	cfg.Gate = gate(t, admit.Config{StatefulRate: 1e-9})
	s := newTest(t, cfg)
	s.e.Receive(s.now, servAddr, unhex("0001000000"), &s.recorder) // takes the only token
	s.sent = nil
	s.recv("00 0100 0000")
	id := s.sent[1][6:10]
	s.wait(statelessWindow)
	s.recv("06 0000 00", "07"+id)
	s.events("the hello was answered", "connected")
}

// silentTest returns an endpoint with LoginTimeout that was asked for a connection.
func silentTest(t *testing.T) *connTest {
	t.Helper()
	cfg := loginConfig()
	cfg.LoginTimeout = 5 * time.Second
	s := newTest(t, cfg)
	s.recv("00 0100 0000")
	s.want("a request is answered", "01 00 0000")
	return s
}

// TestLoginTimeout: a peer that connects and does not log in is told, if it proves its address.
func TestLoginTimeout(t *testing.T) {
	s := silentTest(t)
	s.wait(3999 * time.Millisecond)
	s.want("the peer has time")
	s.wait(time.Millisecond)
	if len(s.sent) != 1 || !strings.HasPrefix(s.sent[0], "050000") {
		t.Fatalf("sent %v, want a greeting: the request may be forged, and the peer play elsewhere", s.sent)
	}
	id := s.sent[0][6:10]
	s.sent = nil
	s.wait(500 * time.Millisecond)
	if len(s.sent) != 1 || !strings.HasPrefix(s.sent[0], "050100") {
		t.Fatalf("sent %v, want the other greeting: the first may be lost", s.sent)
	}
	s.sent = nil
	s.recv("08" + id)
	s.wait(499 * time.Millisecond)
	s.want("the peer may still log in")
	s.wait(time.Millisecond)
	s.want("it is too late", "02")
	s.dropped("counted", DropLoginTimeout, 1)
	s.wait(time.Minute)
	s.want("that was all")
}

func TestLoginTimeoutOfOthers(t *testing.T) {
	told := func(s *connTest) (n int) {
		s.wait(9 * time.Second)
		for _, d := range s.sent {
			if d == "02" {
				n++
			}
		}
		return n
	}
	s := silentTest(t)
	if told(s) != 0 || len(s.sent) != 2 {
		t.Errorf("sent %v to a peer that answers nothing, want two greetings", s.sent)
	}
	if most := unprovenFactor * 5; 4+len(s.sent[0])/2+len(s.sent[1])/2 > most {
		t.Errorf("sent %v for 5 bytes, want at most %d", s.sent, most)
	}
	for message, why := range map[string]string{
		later:          "the login is judged",
		wrong:          "its library gives up",
		"00 0100 0000": "the first answer was lost, so it is not connected for so long",
	} {
		s = silentTest(t)
		s.wait(3900 * time.Millisecond)
		s.recv(message)
		s.sent = nil
		s.wait(200 * time.Millisecond)
		s.want(why)
	}
	s = silentTest(t)
	s.e.Overhear(peerAddr, unhex("06 0000 00"))
	s.wait(4 * time.Second)
	if len(s.sent) != 1 {
		t.Errorf("sent %v, want a greeting: an answer that an attempt to connect may have says nothing", s.sent)
	}
	s.sent = nil
	s.e.Overhear(peerAddr, unhex("04 0900 61"))
	s.wait(time.Second)
	s.want("somebody else serves the peer")
	s = silentTest(t)
	s.wait(4200 * time.Millisecond)
	s.recv(letMeIn)
	s.events("it logs in after the first greeting", "connected")
	if told(s) != 0 {
		t.Errorf("sent %v to a peer that logged in", s.sent)
	}
}

// TestSilentPeers: forged requests take no more memory than the table has.
func TestSilentPeers(t *testing.T) {
	s := silentTest(t)
	for i := range 2 * silentMax {
		s.e.Receive(s.now, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 1), unhex("00 0100 0000"), &s.recorder)
	}
	if s.e.silent.n != silentMax {
		t.Errorf("%d peers are remembered, want %d", s.e.silent.n, silentMax)
	}
	s.dropped("others are not told", DropEvicted, silentMax+1)
}

// TestProven: an address that its owner vouches for needs no proof, and shares no rate with its network.
func TestProven(t *testing.T) {
	gate, err := admit.New(admit.Config{AddressRate: 1, Rate: 1, StatefulRate: -1})
	if err != nil {
		t.Fatal(err)
	}
	cfg := quiet()
	cfg.Gate, cfg.Probe = gate, ProbePing
	cfg.Proven = func(from netip.AddrPort) bool { return from.Port() < 50000 }
	s := newTest(t, cfg)
	for range 9 { // the bucket of its network is empty
		s.e.Receive(s.now, netip.AddrPortFrom(peerAddr.Addr(), 50001), unhex("00 0100 0000"), &s.recorder)
	}
	s.sent = nil
	s.recv("00 0100 0000")
	s.want("the request is believed, and the peer is asked whether it speaks command 10", "01 00 0000", "0a 0000 00")
	s.events("at once", "connected")
	s.recv("02")
	s.wait(15 * time.Second)
	s.events("", "closed peer")
	s.recv("00 0100 0000")
	s.events("a request begins the next one", "connected")
}

// TestProvenLogin: its login is never greeted, and it is told at once that it is refused.
func TestProvenLogin(t *testing.T) {
	cfg := loginConfig()
	cfg.Proven = func(netip.AddrPort) bool { return true }
	s := newTest(t, cfg)
	s.recv("00 0100 0000", wrong)
	s.want("it is told", "01 00 0000", "02")
	s.recv(later)
	s.want("it waits")
	s.e.RefuseLogin(peerAddr, &s.recorder)
	s.want("and is told", "02")
	s.recv(letMeIn)
	s.want("the next one is accepted", "06 0000 00", "0a 0000 00")
	s.events("", "connected")
}
