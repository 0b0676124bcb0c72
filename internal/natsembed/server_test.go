package natsembed

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestJetStreamSurvivesRestart(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made", "on", "demand")
	run := func(use func(nats.JetStreamContext)) {
		s, err := Start(Config{Listen: "127.0.0.1:0", Folder: folder})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Shutdown()
		nc := connect(t, s.URL())
		defer nc.Close()
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		use(js)
	}
	run(func(js nats.JetStreamContext) {
		if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish("s", []byte("kept")); err != nil {
			t.Fatal(err)
		}
	})
	run(func(js nats.JetStreamContext) {
		m, err := js.GetMsg("S", 1)
		if err != nil || string(m.Data) != "kept" {
			t.Errorf("after a restart: %v, %v", m, err)
		}
	})
}

func TestTemporaryFolderIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	left := func() []string {
		all, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if len(left()) != 1 {
		t.Errorf("folders while it runs: %v", left())
	}
	s.Shutdown()
	if len(left()) != 0 {
		t.Errorf("folders after Shutdown: %v", left())
	}
}

func TestWithoutListener(t *testing.T) {
	s := start(t, Config{Mappings: subject.Names{}.Mappings(64)})
	nc := connect(t, "", nats.InProcessServer(s))
	sub, err := nc.SubscribeSync("dnp.v1.shard.*.publish.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("dnp.v1.publish.demo.tower", nil); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil || !strings.HasSuffix(m.Subject, ".publish.demo.tower") {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestErrorsAreOneClearLine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Listen: l.Addr().String()}, []string{l.Addr().String(), "in use"}},
		{Config{Listen: "4222"}, []string{`"4222"`, "host:port"}},
		{Config{Listen: "127.0.0.1:x"}, []string{"host:port"}},
		{Config{Listen: "127.0.0.1:70000"}, []string{"host:port"}},
		{Config{Listen: "192.0.2.1:4222"}, []string{"192.0.2.1:4222", "assign"}},
		{Config{Folder: filepath.Join(file, "sub")}, []string{"data folder", file}},
		{Config{Folder: file}, []string{"data folder", file}},
		{Config{Folder: "/proc/nothing"}, []string{"data folder", "/proc/nothing"}},
		{Config{Mappings: []subject.Mapping{{From: "a.*", To: "b.{{nothing(1)}}"}}}, []string{"a.*", "nothing"}},
	} {
		s, err := Start(c.cfg)
		if err == nil {
			s.Shutdown()
			t.Errorf("%+v: started", c.cfg)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v: got %q, want one line with %q", c.cfg, err, want)
			}
		}
	}
}
