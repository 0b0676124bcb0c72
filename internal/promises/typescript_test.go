package promises

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// tsFile is what `npx tsc` makes of clients/typescript/test/player.ts.
const tsFile = "../../clients/typescript/build/test/player.js"

// A tsProcess is a process of Node with players that use the client in TypeScript.
type tsProcess struct {
	in      io.Writer
	write   sync.Mutex // one line at a time
	exited  chan struct{}
	stopped error // after exited

	mu      sync.Mutex // the reader and all users of players
	answers map[int]chan tsAnswer
	players []*tsPlayer // the number of the first is 1
	states  map[int]*tsState
	n       int
}

// A tsAnswer is what a request leads to.
type tsAnswer struct {
	Result      json.RawMessage
	Error, Code string
}

// A tsLine is what the process says: the answer to the request N, what never changes of a State, or an Event.
type tsLine struct {
	tsAnswer
	N, Player, State, Index int
	Event, Reason, Detail   string
	Key                     string
	Message, Data, Value    []byte
	Values                  [][]byte
	Types, Names            []string
	Writable                bool
}

// needTypeScript skips a test where there is nothing to run players in TypeScript.
func needTypeScript(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing, which runs the client in TypeScript")
	}
	if _, err := os.Stat(tsFile); err != nil {
		t.Skip("the client in TypeScript is not built: cd clients/typescript && npm ci && npx tsc")
	}
}

// startTypeScript runs a process until the test ends.
func startTypeScript(t testing.TB) *tsProcess {
	t.Helper()
	file, err := filepath.Abs(tsFile)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "--no-warnings", "--experimental-websocket", file) // Node has a WebSocket without the flag from 22 on
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &tsProcess{in: in, exited: make(chan struct{}), answers: map[int]chan tsAnswer{}, states: map[int]*tsState{}}
	go func() {
		defer close(p.exited)
		lines := bufio.NewReader(out)
		for {
			b, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var line tsLine
			if p.stopped = json.Unmarshal(b, &line); p.stopped != nil {
				break
			}
			p.take(&line)
		}
		if err := cmd.Wait(); p.stopped == nil {
			p.stopped = errors.Join(errors.New("the process of the players in TypeScript has ended"), err)
		}
	}()
	t.Cleanup(func() { in.Close(); <-p.exited })
	return p
}

// take handles a line.
func (p *tsProcess) take(line *tsLine) {
	p.mu.Lock()
	switch {
	case line.N != 0:
		p.answers[line.N] <- line.tsAnswer
		delete(p.answers, line.N)
		p.mu.Unlock()
	case line.Event == "":
		p.states[line.State] = newTSState(p, line)
		p.mu.Unlock()
	default:
		player, s := p.players[line.Player-1], p.states[line.State]
		player.happens(line, s)
		close(player.changed)
		player.changed = make(chan struct{})
		p.mu.Unlock()
		player.tell(line, s)
	}
}

// ask sends a request and waits for its answer.
func (p *tsProcess) ask(ctx context.Context, do string, args map[string]any) (tsAnswer, error) {
	answer := make(chan tsAnswer, 1)
	p.mu.Lock()
	p.n++
	args["n"], args["do"] = p.n, do
	p.answers[p.n] = answer
	p.mu.Unlock()
	b, err := json.Marshal(args)
	if err != nil {
		return tsAnswer{}, err
	}
	p.write.Lock()
	_, err = p.in.Write(append(b, '\n'))
	p.write.Unlock()
	if err != nil {
		return tsAnswer{}, err
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return a, fmt.Errorf("%s in TypeScript: %s", do, a.Error)
		}
		return a, nil
	case <-p.exited:
		return tsAnswer{}, p.stopped
	case <-ctx.Done():
		return tsAnswer{}, ctx.Err()
	}
}

// A tsPlayer is one of the process.
type tsPlayer struct {
	p       *tsProcess
	number  int
	ears    ears
	done    chan struct{}
	changed chan struct{}       // closed when something happened
	states  map[string]*tsState // with a link
	err     error
}

// dial connects a player.
func (p *tsProcess) dial(ctx context.Context, url string, e ears) (player, error) {
	p.mu.Lock()
	pl := &tsPlayer{p: p, number: len(p.players) + 1, ears: e, done: make(chan struct{}), changed: make(chan struct{}), states: map[string]*tsState{}}
	p.players = append(p.players, pl)
	p.mu.Unlock()
	if _, err := pl.ask(ctx, "connect", map[string]any{"url": url}); err != nil {
		return nil, err
	}
	return pl, nil
}

func (pl *tsPlayer) ask(ctx context.Context, do string, args map[string]any) (tsAnswer, error) {
	args["player"] = pl.number
	return pl.p.ask(ctx, do, args)
}

// happens changes what the test sees.
func (pl *tsPlayer) happens(line *tsLine, s *tsState) {
	switch line.Event {
	case "link":
		s.player, s.values, pl.states[s.key] = pl, line.Values, s
	case "change", "set":
		s.values[line.Index] = line.Value
	case "unlink":
		if pl.states[s.key] == s {
			delete(pl.states, s.key)
		}
	case "close":
		if pl.err == nil {
			pl.err = &client.EndError{Reason: client.Reason(line.Reason), Made: true, Err: errors.New(line.Detail)}
			close(pl.done)
		}
	}
}

// tell calls the ears.
func (pl *tsPlayer) tell(line *tsLine, s *tsState) {
	switch e := pl.ears; {
	case line.Event == "link" && e.see != nil:
		e.see(s, nil)
	case line.Event == "change" && e.see != nil:
		e.see(s, []int{line.Index})
	case line.Event == "unlink" && e.unlink != nil:
		e.unlink(s)
	case line.Event == "refused" && e.refused != nil:
		e.refused(s.Name(line.Index), line.Code)
	case line.Event == "message" && e.message != nil:
		e.message(line.Data)
	}
}

func (pl *tsPlayer) State(key string) state {
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	if s := pl.states[key]; s != nil {
		return s
	}
	return nil
}

func (pl *tsPlayer) States() (list []state) {
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	for _, s := range pl.states {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b state) int { return a.(*tsState).number - b.(*tsState).number })
	return list
}

func (pl *tsPlayer) Until(ctx context.Context, reached func() bool) error {
	for {
		pl.p.mu.Lock()
		changed := pl.changed
		pl.p.mu.Unlock()
		if reached() {
			return nil
		}
		select {
		case <-changed:
		case <-pl.done:
			if reached() {
				return nil
			}
			return pl.Err()
		case <-pl.p.exited:
			return pl.p.stopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (pl *tsPlayer) Await(ctx context.Context, key string) (s state, err error) {
	err = pl.Until(ctx, func() bool { s = pl.State(key); return s != nil })
	return s, err
}

func (pl *tsPlayer) Offer(message string, fields ...client.Field) (state, error) {
	var values []any
	for _, f := range fields {
		v := map[string]any{"type": f.Type, "value": f.Value}
		if f.Name != "" {
			v["name"] = f.Name
		}
		values = append(values, v)
	}
	a, err := pl.ask(context.Background(), "offer", map[string]any{"data": []byte(message), "values": values})
	if err != nil {
		return nil, err
	}
	var n int
	if err := json.Unmarshal(a.Result, &n); err != nil {
		return nil, err
	}
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	s := pl.p.states[n]
	s.player = pl
	return s, nil
}

func (pl *tsPlayer) Withdraw(own state) {
	_, _ = pl.ask(context.Background(), "withdraw", map[string]any{"state": own.(*tsState).number})
}

func (pl *tsPlayer) Send(data []byte) error {
	_, err := pl.ask(context.Background(), "send", map[string]any{"data": data})
	return err
}

func (pl *tsPlayer) Close() error {
	_, err := pl.ask(context.Background(), "close", map[string]any{})
	return err
}

func (pl *tsPlayer) Done() <-chan struct{} { return pl.done }

func (pl *tsPlayer) Err() error {
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	return pl.err
}

// A tsState is a state that a player has or had.
type tsState struct {
	p        *tsProcess
	player   *tsPlayer
	number   int
	key      string
	message  []byte
	names    []string
	types    []wire.ValueType
	readOnly bool
	values   [][]byte // encoded
}

func newTSState(p *tsProcess, line *tsLine) *tsState {
	s := &tsState{p: p, number: line.State, key: line.Key, message: line.Message, names: line.Names, readOnly: !line.Writable, values: line.Values}
	for _, name := range line.Types {
		t, _ := wire.ParseValueType(name)
		s.types = append(s.types, t)
	}
	return s
}

func (s *tsState) Key() string     { return s.key }
func (s *tsState) Message() []byte { return s.message }
func (s *tsState) ReadOnly() bool  { return s.readOnly }

func (s *tsState) Name(i int) string {
	if i < len(s.names) {
		return s.names[i]
	}
	return ""
}

func (s *tsState) At(i int) client.Value {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if i < 0 || i >= len(s.values) {
		return client.Value{}
	}
	v, _ := client.NewValue(s.types[i], s.values[i])
	return v
}

func (s *tsState) Value(name string) client.Value { return s.At(slices.Index(s.names, name)) }

// write has the player set a value.
func (s *tsState) write(ctx context.Context, do string, value, to any) error {
	if f, ok := to.(float64); ok && math.IsNaN(f) {
		to = "NaN"
	}
	s.p.mu.Lock()
	player := s.player
	s.p.mu.Unlock()
	_, err := player.ask(ctx, do, map[string]any{"state": s.number, "name": value, "to": to})
	return err
}

func (s *tsState) Set(name string, v any) error { return s.write(context.Background(), "set", name, v) }
func (s *tsState) SetAt(i int, v any) error     { return s.write(context.Background(), "set", i, v) }

func (s *tsState) SetConfirmed(ctx context.Context, name string, v any) error {
	return s.write(ctx, "confirm", name, v)
}

func (s *tsState) Command(ctx context.Context, name string, body []byte) (answer []byte, err error) {
	a, err := s.p.ask(ctx, "command", map[string]any{"state": s.number, "name": name, "data": append([]byte{}, body...)})
	switch {
	case a.Code != "":
		return nil, &client.CommandError{Code: a.Code, Text: a.Error}
	case err != nil:
		return nil, err
	}
	return answer, json.Unmarshal(a.Result, &answer)
}
