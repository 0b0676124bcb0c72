package command

// Window is how many ids of requests, up to the highest answered one, a Progress tells apart. An id
// below them counts as answered.
const Window = 64

// OutstandingMax is how many requests of a client may have no answer.
const OutstandingMax = 16

// A Progress is how far the commands of a session are. It outlives an edge, with the log of the
// session, so that a client gets one answer to each request, whichever edges it has. The zero value
// is that of a client that did not opt in.
type Progress struct {
	Hello    uint64       // number of the hello, plus one; 0 if the client did not opt in
	Granted  Capabilities // that the client has
	highest  uint16       // id that was answered
	answered uint64       // bit i: id highest-i was answered; 0 if none was
}

// OptIn takes a reliable message of the client, and reports whether that is its hello.
func (p *Progress) OptIn(number uint64, message []byte) bool {
	if p.Hello != 0 || !IsHello(message) {
		return false
	}
	p.Hello, p.Granted = number+1, parseHello(message)
	return true
}

// OptedIn reports whether the reliable message with this number comes after the hello.
func (p *Progress) OptedIn(number uint64) bool { return p.Hello != 0 && number >= p.Hello }

// Answered reports whether a request was answered, or is too old to say.
func (p *Progress) Answered(id uint16) bool {
	if p.answered == 0 {
		return false
	}
	behind := int16(p.highest - id)
	return behind >= Window || behind >= 0 && p.answered>>behind&1 != 0
}

// Note notes that a request was answered.
func (p *Progress) Note(id uint16) {
	if p.answered == 0 {
		p.highest, p.answered = id, 1
		return
	}
	switch ahead := int16(id - p.highest); {
	case ahead > 0:
		p.highest = id
		p.answered = p.answered<<min(int(ahead), Window) | 1
	case -int(ahead) < Window:
		p.answered |= 1 << -int(ahead)
	}
}

// Forget takes a note back: the answer was not sent.
func (p *Progress) Forget(id uint16) {
	if behind := int16(p.highest - id); behind >= 0 && behind < Window {
		p.answered &^= 1 << behind
	}
}

// Words returns a Progress as three numbers, from which Restore makes it again.
func (p *Progress) Words() [3]uint64 {
	return [3]uint64{p.Hello, uint64(p.Granted)<<16 | uint64(p.highest), p.answered}
}

// Restore returns the Progress with these Words.
func Restore(words [3]uint64) Progress {
	return Progress{Hello: words[0], Granted: Capabilities(words[1] >> 16), highest: uint16(words[1]), answered: words[2]}
}

// tokenBit marks the tokens of answers among those by which an edge names messages to a client. They
// are below all that have a token of a game server.
const tokenBit = 1 << 19

// Token returns the token by which an edge names the answer to a request.
func Token(id uint16) uint64 { return tokenBit | uint64(id) }

// TokenID returns the id of the request whose answer has this token.
func TokenID(token uint64) (id uint16, ok bool) {
	return uint16(token), token&^0xFFFF == tokenBit
}
