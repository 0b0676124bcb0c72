package natstest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A Backup is a backup of a stream, as `nats stream backup` makes it.
type Backup struct {
	stream        string
	config, state json.RawMessage
	chunks        [][]byte
}

// BackUp makes a backup of a stream. The connection may call the API of JetStream.
func BackUp(t testing.TB, nc *nats.Conn, stream string) *Backup {
	t.Helper()
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Config, State json.RawMessage }
	Call(t, nc, "STREAM.SNAPSHOT."+stream, map[string]any{"deliver_subject": inbox.Subject}, &answer)
	b := &Backup{stream: stream, config: answer.Config, state: answer.State}
	for {
		m, err := inbox.NextMsg(readyTimeout)
		if err != nil {
			t.Fatalf("backup of %s: %v", stream, err)
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				t.Fatalf("backup of %s: %v", stream, m.Header)
			}
			return b
		}
		b.chunks = append(b.chunks, m.Data)
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Restore makes the stream from the backup, with a number of replicas.
func (b *Backup) Restore(t testing.TB, nc *nats.Conn, replicas int) {
	t.Helper()
	var config map[string]any
	if err := json.Unmarshal(b.config, &config); err != nil {
		t.Fatal(err)
	}
	config["num_replicas"] = replicas
	var answer struct {
		Deliver string `json:"deliver_subject"`
	}
	Call(t, nc, "STREAM.RESTORE."+b.stream, map[string]any{"config": config, "state": b.state}, &answer)
	for _, chunk := range append(b.chunks, nil) {
		m, err := nc.Request(answer.Deliver, chunk, readyTimeout)
		for end := time.Now().Add(readyTimeout); errors.Is(err, nats.ErrNoResponders) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			m, err = nc.Request(answer.Deliver, chunk, readyTimeout) // the server of this connection does not know yet that another one listens
		}
		if err != nil {
			t.Fatalf("restore of %s: %v", b.stream, err)
		}
		if strings.Contains(string(m.Data), `"error"`) {
			t.Fatalf("restore of %s: %s", b.stream, m.Data)
		}
	}
}

// Call calls the API of JetStream, and repeats the call until it is answered without an error.
func Call(t testing.TB, nc *nats.Conn, verb string, request, answer any) {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for end := time.Now().Add(readyTimeout); ; time.Sleep(200 * time.Millisecond) {
		m, err := nc.Request("$JS.API."+verb, body, 5*time.Second)
		if err == nil && !strings.Contains(string(m.Data), `"error"`) {
			if err := json.Unmarshal(m.Data, answer); err != nil {
				t.Fatal(err)
			}
			return
		}
		if m != nil {
			last = string(m.Data)
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v %s", verb, err, last)
		}
	}
}
