package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/dnprelaytest"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// backupPatience ends a test that would wait for ever. It says nothing about speed.
const backupPatience = 2 * time.Minute

// A deployment is NATS and a relay with a number of shards.
type deployment struct {
	testing.TB
	url    string
	shards int
	nc     *nats.Conn
	end    func() // of the relay and NATS
}

// startDeployment starts one. With a folder, its relay stores states there.
func startDeployment(t testing.TB, shards int, folder string) *deployment {
	t.Helper()
	d := &deployment{TB: t, shards: shards}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Folder: folder, Mappings: subject.Names{}.Mappings(shards)})
	must(err)
	d.url = srv.URL()
	d.nc, err = nats.Connect(d.url)
	must(err)
	b, err := natsbus.Connect(natsbus.Config{URL: d.url, Name: "relay"})
	must(err)
	cfg := relay.Config{Node: "r1", Bus: b, Shards: shards, Epoch: uint64(time.Now().UnixMilli()), Tick: time.Millisecond, DrainTimeout: backupPatience, Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(context.Background())
	leasesCtx, stopLeases := context.WithCancel(context.Background())
	var running, leasing sync.WaitGroup
	if folder != "" {
		leases, err := natslease.Open(ctx, natslease.Config{Conn: b.Conn(), Node: "r1", Shards: shards, Replicas: 1})
		must(err)
		cfg.Leases = leases
		leasing.Go(func() { leases.Run(leasesCtx) })
	}
	r, err := relay.New(cfg)
	must(err)
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	d.end = sync.OnceFunc(func() {
		stop()
		running.Wait()
		stopLeases()
		leasing.Wait()
		b.Close()
		d.nc.Close()
		srv.Shutdown()
	})
	t.Cleanup(d.end)
	return d
}

// ask asks the relay until it answers without "no responders".
func (d *deployment) ask(subject, body string) string {
	d.Helper()
	for end := time.Now().Add(backupPatience); time.Now().Before(end); {
		m, err := d.nc.Request(subject, []byte(body), 5*time.Second)
		if err == nil {
			return string(m.Data)
		}
	}
	d.Fatalf("no answer to %s", subject)
	return ""
}

// publish publishes ops, of which none may be refused.
func (d *deployment) publish(space string, ops ...string) {
	d.Helper()
	if answer := d.ask("dnp.v1.publish."+space, `{"ops":[`+strings.Join(ops, ",")+`]}`); strings.Contains(answer, "error") {
		d.Fatal(answer)
	}
}

// join says as an edge that a client is in a space, and waits until the relay knows it.
func (d *deployment) join(space, name string) {
	d.Helper()
	body := fmt.Appendf(nil, `{"v":1,"type":"joined","space":%q,"client":%q,"session":"s-%s","edge":"e1"}`, space, name, name)
	for {
		if err := d.nc.Publish("dnp.v1.event."+space, body); err != nil {
			d.Fatal(err)
		}
		if !strings.Contains(d.ask("dnp.v1.publish."+space, `{"op":"group","client":"`+name+`","join":[]}`), "unknown_client") {
			return
		}
	}
}

// states returns what get answers of a space, without the position.
func (d *deployment) states(space string) string {
	d.Helper()
	_, states, _ := strings.Cut(d.ask("dnp.v1.get."+space, ""), `"states":`)
	return states
}

// dnpctl runs the program.
func (d *deployment) dnpctl(args ...string) (out string, err error) {
	d.Helper()
	return dnpctl(d.TB, append(args, "--nats-url", d.url, "--shards", fmt.Sprint(d.shards))...)
}

func dnpctl(t testing.TB, args ...string) (out string, err error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Args[0] = "dnpctl" // by which the test knows what it is
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// ok runs the program, and fails the test if the program fails.
func (d *deployment) ok(args ...string) string {
	d.Helper()
	out, err := d.dnpctl(args...)
	if err != nil {
		d.Fatalf("dnpctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// refuses runs the program, and wants exit code 1 and the reason.
func (d *deployment) refuses(why string, args ...string) {
	d.Helper()
	out, err := d.dnpctl(args...)
	if err == nil || !strings.Contains(out, why) || strings.Count(out, "\n") != 1 {
		d.Errorf("dnpctl %s: %v, want one line with %q: %s", strings.Join(args, " "), err, why, out)
	}
}

// content returns what the files of a backup have, but for the first and the last line of each.
func content(t testing.TB, dir string) (all string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		all += filepath.Base(name) + "\n" + strings.Join(lines[1:len(lines)-2], "")
	}
	return all
}

// golden returns the ops of the backup in internal/backup, which has everything that is stored.
func golden(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("../../internal/backup/testdata/demo.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	return lines[1 : len(lines)-2]
}

// TestBackup restores a backup into a deployment with another number of shards, and into one that has other states, which end. A backup of each has
// the same ops.
func TestBackup(t *testing.T) {
	from, to := startDeployment(t, 64, ""), startDeployment(t, 8, "")
	for _, d := range []*deployment{from, to} {
		d.join("demo", "c1")
		d.join("demo", "c2")
	}
	from.publish("demo", golden(t)...)
	from.publish("other", `{"op":"put","key":"a","values":[{"type":"uint8","value":1}]}`)
	dir := filepath.Join(t.TempDir(), "new", "monday")
	out := from.ok("backup", dir)
	if !strings.Contains(out, "demo: 5 states backed up") || !strings.Contains(out, "other: 1 states backed up") {
		t.Errorf("backup says %s", out)
	}
	if all := content(t, dir); !strings.Contains(all, strings.Join(golden(t), "\n")) {
		t.Fatalf("the file has other ops:\n%s", all)
	}
	from.refuses("exists; a backup overwrites nothing", "backup", dir, "demo")
	from.refuses("no relay has a state of space nothing", "backup", filepath.Join(dir, "2"), "nothing")
	from.refuses("no relay has a state of space ../x", "backup", dir, "../x")
	from.refuses("the file is that of space demo", "restore", dir, "../monday/demo")

	if out := to.ok("restore", dir, "--dry-run"); !strings.Contains(out, "demo: 5 states would be restored") {
		t.Errorf("a dry run says %s", out)
	}
	if got := to.states("demo"); got != "[]}" {
		t.Errorf("a dry run made states: %s", got)
	}
	to.ok("restore", dir)
	again := filepath.Join(t.TempDir(), "again")
	to.ok("backup", again)
	if got, want := content(t, again), content(t, dir); got != want {
		t.Fatalf("a backup of what was restored is\n%s\nwant\n%s", got, want)
	}

	to.refuses("space demo is not empty: it has 5 states and 1 named interests; --replace replaces them", "restore", dir)
	to.publish("demo", `{"op":"clear"}`,
		`{"op":"interest","name":"walker","at":"0","bands":[{"within":5}]}`, `{"op":"interest","name":"left","at":"0","bands":[{"within":5}]}`,
		`{"op":"put","key":"tower","priority":7,"ttl":"5m","values":[{"type":"point2s8"}],"interest":"walker"}`,
		`{"op":"put","key":"newer","values":[{"type":"uint8"}]}`, `{"op":"group","client":"c1","join":["green"]}`)
	out = to.ok("restore", dir, "demo", "--replace", "--json")
	var r spaceResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Space != "demo" || r.States != 5 || r.Replaced != 2 || r.Epoch == 0 {
		t.Errorf("restore --json says %s, %v", out, err)
	}
	again = filepath.Join(t.TempDir(), "again")
	to.ok("backup", again)
	if got, want := content(t, again), content(t, dir); got != want {
		t.Errorf("a backup of what was replaced is\n%s\nwant\n%s", got, want)
	}
}

// TestRestoreElsewhere restores ops about clients that are not in the space, and ops that the relay refuses. The command carries out the others, and
// reports these.
func TestRestoreElsewhere(t *testing.T) {
	from := startDeployment(t, 64, "")
	from.join("demo", "c1")
	from.publish("demo", `{"op":"put","key":"a","values":[{"type":"uint8"}]}`, `{"op":"group","client":"c1","join":["red"]}`)
	dir := t.TempDir()
	from.ok("backup", dir)
	to := startDeployment(t, 4, "")
	if out := to.ok("restore", dir); !strings.Contains(out, "1 ops about absent clients, 0 refused") {
		t.Errorf("restore says %s", out)
	}
	if got := to.states("demo"); !strings.Contains(got, `"key":"a"`) {
		t.Errorf("got %s", got)
	}
	out, err := dnpctl(t, "backup", filepath.Join(dir, "2"), "--nats-url", to.url, "--shards", "5")
	if err == nil || !strings.Contains(out, "relays hold 4 of 5 shards") {
		t.Errorf("with a shard without a holder: %v, %s", err, out)
	}
}

// TestRestoreLarge restores a space that takes several publishes.
func TestRestoreLarge(t *testing.T) {
	d := startDeployment(t, 4, "")
	const publishes, states = 5, 500
	text := strings.Repeat("x", 1000)
	for n := range publishes {
		var ops []string
		for i := range states {
			ops = append(ops, fmt.Sprintf(`{"op":"put","key":"k%d.%d","values":[{"type":"string","value":"%s"}]}`, n, i, text))
		}
		d.publish("large", ops...)
	}
	dir := t.TempDir()
	if out := d.ok("backup", dir); !strings.Contains(out, fmt.Sprintf("large: %d states", publishes*states)) {
		t.Fatal(out)
	}
	d.publish("large", `{"op":"put","key":"later","values":[{"type":"uint8"}]}`)
	d.ok("restore", dir, "--replace")
	again := filepath.Join(dir, "again")
	d.ok("backup", again)
	if err := os.Rename(filepath.Join(dir, "large.jsonl"), filepath.Join(t.TempDir(), "large.jsonl")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, again); strings.Count(got, `"op":"put"`) != publishes*states || strings.Contains(got, "later") {
		t.Errorf("the space has %d states", strings.Count(got, `"op":"put"`))
	}
}

// TestBackupLive backs a space up while one publish after the other changes two states. Both have the same value in each backup.
func TestBackupLive(t *testing.T) {
	d := startDeployment(t, 4, "")
	var puts []string
	for i := range 300 { // between the two
		puts = append(puts, fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"uint64"}]}`, i))
	}
	d.publish("demo", append(puts, `{"op":"put","key":"a","values":[{"type":"uint64"}]}`, `{"op":"put","key":"z","values":[{"type":"uint64"}]}`)...)
	stop, changed := make(chan struct{}), 0
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond) // two states 500 times a second
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = d.nc.Publish("dnp.v1.publish.demo", fmt.Appendf(nil, `{"ops":[{"op":"set","key":"a","values":{"0":%d}},{"op":"set","key":"z","values":{"0":%d}}]}`, n, n))
				changed = n
			}
		}
	})
	values := make(map[string]bool)
	for i := range 8 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		d.ok("backup", dir)
		var got []string
		for line := range strings.SplitSeq(content(t, dir), "\n") {
			if strings.Contains(line, `"key":"a"`) || strings.Contains(line, `"key":"z"`) {
				_, value, _ := strings.Cut(line, `"values":`)
				got = append(got, value)
			}
		}
		if len(got) != 2 || got[0] != got[1] {
			t.Errorf("a and z are %q", got)
		}
		values[fmt.Sprint(got)] = true
	}
	close(stop)
	running.Wait()
	if len(values) < 2 {
		t.Errorf("%d changes, and the backups have %v", changed, values)
	}
}

// TestRestoreDamaged damages the file of one space. The command refuses the whole backup before it changes a space.
func TestRestoreDamaged(t *testing.T) {
	d := startDeployment(t, 4, "")
	for _, space := range []string{"a", "b"} {
		d.publish(space, `{"op":"put","key":"k","values":[{"name":"n","type":"uint8","value":1}]}`)
	}
	dir := t.TempDir()
	d.ok("backup", dir)
	d.publish("a", `{"op":"set","key":"k","values":{"n":2}}`)
	before := d.states("a")
	file := filepath.Join(dir, "b.jsonl")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Replace(whole, []byte(`"value":1`), []byte(`"value":3`), 1)
	for _, c := range []struct {
		text []byte
		want string
	}{
		{flipped, "the file is damaged: its checksum or its counts differ"},
		{whole[:len(whole)-2], "its checksum or its counts differ"},
		{whole[:len(whole)/2], "the file is damaged: line 2"},
		{whole[:bytes.LastIndexByte(whole[:len(whole)-1], 10)+1], "the file ends early"},
		{nil, "the file ends early"},
		{[]byte("hello\n"), "no backup of a space"},
		{bytes.Replace(whole, []byte(`backup":1`), []byte(`backup":9`), 1), "the file has the format 9, this release reads 1"},
		{bytes.Replace(whole, []byte(`"space":"b"`), []byte(`"space":"c"`), 1), "the file is that of space c"},
	} {
		if err := os.WriteFile(file, c.text, 0o666); err != nil {
			t.Fatal(err)
		}
		d.refuses(c.want, "restore", dir, "--replace")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	d.refuses("has 1 of the 2 files that were written together", "restore", dir, "--replace")
	d.refuses("b.jsonl: no such file", "restore", dir, "a", "b", "--replace")
	d.refuses("has no file of a backup", "restore", t.TempDir())
	if got := d.states("a"); got != before {
		t.Errorf("space a changed to %s", got)
	}
	d.ok("restore", dir, "a", "--replace")
	if got := d.states("a"); got == before {
		t.Errorf("space a is still %s", got)
	}
}

// TestSaveLeavesNothing checks that a backup that cannot be written leaves the directory as it was.
func TestSaveLeavesNothing(t *testing.T) {
	d := startDeployment(t, 4, "")
	for _, space := range []string{"0", "a"} {
		d.publish(space, `{"op":"put","key":"k","values":[{"type":"uint8"}]}`)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "a.jsonl")
	if err := os.WriteFile(file, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	d.refuses("exists", "backup", dir)
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	d.refuses("not a directory", "backup", filepath.Join(dir, "file", "x"))
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if text, _ := os.ReadFile(file); err != nil || string(text) != "mine" || len(names) != 2 {
		t.Errorf("the directory has %q, and the file %q, %v", names, text, err)
	}
}

// TestReshard follows the runbook: backup, delete the streams, start with another number of shards, restore. Afterwards a relay that restarts has
// the states.
func TestReshard(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "js")
	before := startDeployment(t, 16, folder)
	ops := golden(t)
	ops = ops[:len(ops)-3] // without clients, which are not there
	before.publish("demo", ops...)
	dir := t.TempDir()
	before.ok("backup", dir)
	before.end()

	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for name := range js.StreamNames() {
		if strings.HasPrefix(name, "DNP_STORE_") {
			if err := js.DeleteStream(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	nc.Close()
	srv.Shutdown()

	after := startDeployment(t, 24, folder)
	after.eventually("restore", dir)
	after.end()
	later := startDeployment(t, 24, folder)
	again := t.TempDir()
	later.eventually("backup", again)
	if got, want := content(t, again), content(t, dir); got != want {
		t.Errorf("after another start\n%s\nwant\n%s", got, want)
	}
}

// eventually runs the program until relays hold all shards.
func (d *deployment) eventually(args ...string) {
	d.Helper()
	for end := time.Now().Add(backupPatience); ; {
		out, err := d.dnpctl(args...)
		if err == nil {
			return
		}
		if !strings.Contains(out, "shards") && !strings.Contains(out, "still loads") && !strings.Contains(out, "no relay") || time.Now().After(end) {
			d.Fatalf("dnpctl %s: %s", strings.Join(args, " "), out)
		}
	}
}

// TestRestoreSeen replaces a space under a client and a game server. The client gets the farewells of the former states, and the states of the backup.
// The game server gets no event, and what it says afterwards counts, also about a state that the backup lacks.
func TestRestoreSeen(t *testing.T) {
	srv := dnprelaytest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), backupPatience)
	defer cancel()
	p, err := publisher.Connect(ctx, publisher.Config{URL: srv.NATS})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	space, err := p.Space(srv.Space)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	type value struct {
		N uint8 `dnp:"n"`
	}
	bind := func(key string, n uint8) *publisher.Bound[value] {
		t.Helper()
		b, err := publisher.Bind(space, publisher.Put{Key: key, Farewell: key + " is gone"}, value{n})
		must(err)
		must(space.Flush(ctx))
		return b
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := dnpctl(t, append(args, "--nats-url", srv.NATS)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	tower, dir := bind("tower", 1), t.TempDir()
	run("backup", dir)
	must(tower.Set(value{2}))
	newer := bind("newer", 3)

	var mu sync.Mutex // the client calls from a goroutine of its own
	heard := make(map[string]bool)
	c, err := client.Dial(ctx, srv.Edge, client.Config{Message: func(_ *client.Client, m client.Message) {
		mu.Lock()
		defer mu.Unlock()
		heard[string(m.Data)] = true
	}})
	must(err)
	t.Cleanup(func() { _ = c.Close() })
	until := func(what string, reached func() bool) {
		t.Helper()
		if err := c.Until(ctx, reached); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	is := func(key string, n float64) func() bool {
		return func() bool { st := c.State(key); return st != nil && st.Linked() && st.At(0).Float() == n }
	}
	gone := func(key string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return heard[key+" is gone"]
		}
	}
	until("the newest value", is("tower", 2))
	until("the newer state", is("newer", 3))
	run("restore", dir, "--replace")
	until("the value of the backup", is("tower", 1))
	until("the farewell of the newer state", gone("newer"))
	until("the farewell of the state with another value", gone("tower"))
	until("the newer state is gone", func() bool { st := c.State("newer"); return st == nil || !st.Linked() })
	must(tower.Set(value{9}))
	must(newer.Set(value{8}))
	must(space.Flush(ctx))
	until("what the game server says afterwards", is("tower", 9))
	until("also about the newer state", is("newer", 8))
}
