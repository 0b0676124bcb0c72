package backup

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

var update = flag.Bool("update", false, "write testdata anew")

var now = time.Unix(1_790_000_000, 0)

// A space is a store in which two clients are.
type space struct {
	*testing.T
	store *replication.Store
}

func newSpace(t *testing.T, epoch uint64) *space {
	s := &space{t, replication.NewStore(replication.StoreConfig{Space: "demo", Epoch: epoch})}
	s.store.Join("c1", "s1")
	s.store.Join("c2", "s2")
	return s
}

// publish publishes ops, of which none may be refused.
func (s *space) publish(ops ...string) {
	s.Helper()
	p, err := payload.JSON.Parse([]byte(`{"ops":[`+strings.Join(ops, ",")+`]}`), "")
	if err != nil {
		s.Fatal(err)
	}
	if err := s.store.Publish(now, p); err != nil {
		s.Fatalf("%v: %s", err, ops[err.Op])
	}
	s.store.Advance(now)
}

// file returns the backup of the space, by the way that a tool goes.
func (s *space) file() (file []byte, counts Counts) {
	s.Helper()
	stored := replication.Stored{Space: "demo"}
	parts := s.store.Repair(now, stored.Request())
	for i, part := range parts {
		whole, err := stored.Apply(part)
		if err != nil || whole != (i == len(parts)-1) {
			s.Fatalf("part %d of %d: whole %t, %v", i, len(parts), whole, err)
		}
	}
	h := Header{Space: "demo", Time: now.UTC().Format(time.RFC3339), Spaces: 1}
	h.Epoch, h.Seq = stored.Store.Position()
	var b bytes.Buffer
	counts, err := Write(&b, h, &stored)
	if err != nil {
		s.Fatal(err)
	}
	return b.Bytes(), counts
}

// read reads a file to its end.
func read(file []byte) (r *Reader, ops []string, err error) {
	if r, err = NewReader(bytes.NewReader(file)); err != nil {
		return nil, nil, err
	}
	for {
		text, _, err := r.Next()
		if err == io.EOF {
			return r, ops, nil
		}
		if err != nil {
			return nil, nil, err
		}
		ops = append(ops, string(text))
	}
}

// every are ops that make states of every kind, and everything else that is stored.
var every = []string{
	`{"op":"interest","name":"walker","at":"pos","axes":"xz","bands":[{"within":100},{"within":300,"rate":5,"precision":4}],"beyond":"unlink","events":true}`,
	`{"op":"put","key":"tower","message":"text","farewell":"gone","access":"read-only","audience":{"all":true},"priority":3,"ttl":"1h30m","values":[
		{"name":"hp","type":"float32","value":93.5,"precision":0.1,"min":0,"max":100,"rate":5},
		{"name":"pos","type":"vector3f32","value":[1,2,3],"precision":0.01},
		{"name":"owner","type":"string","value":null,"nullable":true,"null":"nobody"}],"interest":"walker"}`,
	`{"op":"put","key":"described","describe":true,"access":"read-write","values":[{"name":"heat","type":"float64","finite":false},{"type":"string"},{"name":"data","type":"data","value":"AAEC"}]}`,
	`{"op":"put","key":"arm.left","message":"base64:/wA=","farewell":"text:base64:","access":{"writers":["c1","c2"]},"audience":{"groups":["red"],"clients":["c1"]},
		"lod":[{"groups":["far"],"clients":[],"precision":8,"rate":5}],"values":[
		{"name":"gun","type":"data","fields":[{"name":"aim","type":"vector3f32"},{"name":"shots","type":"uint16"}],"value":{"aim":[1,2,3],"shots":7},"finite":true}],
		"interest":null}`,
	`{"op":"put","key":"own.interest","audience":{"all":true,"except":{"groups":[],"clients":["c2"]}},"values":[{"type":"point2s32","value":[-1,2]}],"interest":{"at":"0","bands":[{"within":5}]}}`,
	`{"op":"put","key":"nobody","audience":{"all":false},"values":[{"type":"uint64","value":"18446744073709551615"},{"type":"sint8","value":-128},{"type":"quaternionf64","value":[0,0,0,1]},{"type":"float16","value":0.1}]}`,
	`{"op":"group","client":"c1","join":["red","blue"]}`,
	`{"op":"eye","client":"c1","at":["tower","tower#pos",[1,2.5,-3]]}`,
	`{"op":"eye","client":"c2","at":null}`,
}

// full returns a space with everything, which clients have written to, too: numbers and text that JSON does not have, and a state of
// their own.
func full(t *testing.T, epoch uint64) *space {
	t.Helper()
	s := newSpace(t, epoch)
	ops := append([]string(nil), every...)
	ops[3] = strings.Replace(ops[3], `,"finite":true`, "", 1)
	s.publish(ops...)
	write := func(key string, values ...replication.WriteValue) {
		t.Helper()
		l, err := s.store.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		s.store.Write(now, replication.Write{Kind: replication.WriteValues, Session: "s1", Client: "c1", Space: "demo", State: l.States[0].Number, Number: 1, Values: values})
	}
	write("described",
		replication.WriteValue{Index: 0, Type: 10, Value: []byte{0, 0, 0, 0, 0, 0, 0xf0, 0xff}},
		replication.WriteValue{Index: 1, Type: wire.TypeString, Value: []byte{2, 0, 'a', 0xff}})
	write("arm.left", replication.WriteValue{Index: 0, Type: wire.TypeData, Value: []byte{14, 0, 0, 0, 0xc0, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0}})
	s.store.Write(now, replication.Write{Kind: replication.WriteAssert, Session: "s1", Client: "c1", Space: "demo", Link: 5, Number: 2, Message: []byte("mine"), Values: []replication.WriteValue{{Type: 1, Value: []byte{1}}}})
	for _, out := range s.store.Advance(now) {
		if out.Kind == replication.OutputWrite && out.Write.Code != replication.WriteOK {
			t.Fatalf("a write of a client: %+v", out.Write)
		}
	}
	return s
}

// TestGolden: the file is what INTERFACES.md promises, in every byte.
func TestGolden(t *testing.T) {
	const name = "testdata/demo.jsonl"
	got, counts := full(t, 7).file()
	if *update {
		if err := os.WriteFile(name, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if counts != (Counts{9, 5}) {
		t.Errorf("counts %+v, want 9 ops with 5 states", counts)
	}
	r, ops, err := read(want)
	if err != nil || len(ops) != 9 || r.Counts != counts || r.Header.Epoch != 7 || r.Header.Space != "demo" {
		t.Errorf("read %+v and %d ops, %v", r, len(ops), err)
	}
}

// TestBackAndForth: what a file has, published, makes a space with an equal file, but for the position and the checksum.
func TestBackAndForth(t *testing.T) {
	file, _ := full(t, 7).file()
	_, ops, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	other := newSpace(t, 9)
	other.publish(ops...)
	again, _ := other.file()
	if got, want := inner(again), inner(file); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if bytes.Contains(file, []byte("client.c1")) {
		t.Error("the file has the state of a client, which no relay stores")
	}
}

// inner returns all lines but the first and the last.
func inner(file []byte) string {
	lines := strings.SplitAfter(string(file), "\n")
	return strings.Join(lines[1:len(lines)-2], "")
}

// TestLarge: a space that takes several parts is whole, and a missing part is noticed.
func TestLarge(t *testing.T) {
	s := newSpace(t, 7)
	text := strings.Repeat("x", 1000)
	for i := range 700 {
		s.publish(`{"op":"put","key":"k` + strings.Repeat("1", i%50) + `.` + string(rune('a'+i/50)) + `","values":[{"type":"string","value":"` + text + `"}]}`)
	}
	if _, counts := s.file(); counts.States != 700 {
		t.Errorf("the file has %d of 700 states", counts.States)
	}
	stored := replication.Stored{Space: "demo"}
	parts := s.store.Repair(now, stored.Request())
	if len(parts) < 3 {
		t.Fatalf("%d parts", len(parts))
	}
	foreign := bytes.Clone(parts[0])
	foreign[2+8+8] ^= 1 // of the request in the header
	for name, order := range map[string][][]byte{"the answer is to another request": {foreign}, "a part is missing": {parts[0], parts[2]}, "the first is": {parts[1]}, "one is doubled": {parts[0], parts[0]}} {
		stored := replication.Stored{Space: "demo"}
		stored.Request()
		var err error
		for _, part := range order {
			_, err = stored.Apply(part)
		}
		if err == nil {
			t.Errorf("%s, without an error", name)
		}
	}
	stored.Request()
	s.publish(`{"op":"put","key":"later","values":[{"type":"uint8"}]}`)
	later := s.store.Repair(now, stored.Request())
	if _, err := stored.Apply(parts[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := stored.Apply(later[1]); err == nil {
		t.Error("parts of two positions make one copy")
	}
}

// TestPosition: what waits for a batch is in the copy, and the position is that of the batch.
func TestPosition(t *testing.T) {
	s := newSpace(t, 7)
	s.publish(`{"op":"put","key":"a","values":[{"type":"uint8","value":1}]}`)
	p, err := payload.JSON.Parse([]byte(`{"op":"set","key":"a","values":{"0":2}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.Publish(now, p); err != nil {
		t.Fatal(err)
	}
	file, _ := s.file()
	if _, seq := s.store.Position(); !bytes.Contains(file, []byte(`"epoch":7,"seq":2,`)) || seq != 2 || !bytes.Contains(file, []byte(`"value":2`)) {
		t.Errorf("at position 7:%d the file is\n%s", seq, file)
	}
}

// TestDamage: a file that is cut anywhere before its last line end, or has another byte anywhere, is refused.
func TestDamage(t *testing.T) {
	file, _ := full(t, 7).file()
	for n := range file {
		if _, _, err := read(file[:n]); err == nil && n < len(file)-1 {
			t.Fatalf("cut after %d of %d bytes it is read", n, len(file))
		}
		for _, bit := range []byte{1, 0x20} {
			bad := bytes.Clone(file)
			bad[n] ^= bit
			if _, _, err := read(bad); err == nil {
				t.Fatalf("byte %d of %q became %q, and it is read", n, near(file, n), bad[n])
			}
		}
	}
	for _, c := range []struct{ why, from, to, want string }{
		{"a later format", `"dnprelay_backup":1`, `"dnprelay_backup":2`, "the file has the format 2, this release reads 1"},
		{"no header", `"dnprelay_backup":1`, `"backup":1`, "no backup"},
		{"an op of another kind", `{"op":"group","client":"c1","join":["blue","red"]}`, `{"op":"kick","client":"c1"}`, "line 8 has an op that no backup has"},
		{"several ops in a line", `{"op":"group","client":"c1","join":["blue","red"]}`, ` {"ops":[{"op":"group","client":"c1"},{"op":"clear"}]}`, "line 8 has an op that no backup has"},
		{"one op less", `{"op":"group","client":"c1","join":["blue","red"]}` + "\n", "", "checksum"},
		{"more behind the end", `"}` + "\n", `"}` + "\n{}\n", "checksum"},
	} {
		bad := strings.Replace(string(file), c.from, c.to, 1)
		if c.why == "more behind the end" {
			bad = string(file) + "{}\n"
		}
		if _, _, err := read([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
	if _, _, err := read(bytes.Repeat([]byte("x"), lineMax+1)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("an endless line: %v", err)
	}
	if _, _, err := read(nil); !errors.Is(err, errEarly) {
		t.Errorf("an empty file: %v", err)
	}
}

func near(file []byte, n int) string { return string(file[max(0, n-20):min(len(file), n+20)]) }

// TestWriteFails: a full disk is an error.
func TestWriteFails(t *testing.T) {
	if _, err := Write(fullDisk{}, Header{Space: "demo", Epoch: 7}, &replication.Stored{Store: full(t, 7).store}); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

var errFull = errors.New("no space left on device")

// A fullDisk has no room.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

// FuzzReader checks that the reader never panics, and that each file that it accepts has the right checksum.
func FuzzReader(f *testing.F) {
	golden, err := os.ReadFile("testdata/demo.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte(`{"dnprelay_backup":1,"space":"demo","epoch":7}` + "\n" + `{"ops":0,"states":0,"sha256":""}` + "\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, ops, err := read(file)
		if err != nil {
			return
		}
		if len(ops) != r.Counts.Ops || !bytes.HasSuffix(bytes.TrimRight(file, "\r\n"), []byte(r.Counts.end(r.sum))) {
			t.Errorf("%q is whole", file)
		}
	})
}

// FuzzStored: whatever an answer is, a copy of a space reads it without a panic.
func FuzzStored(f *testing.F) {
	s := newSpace(new(testing.T), 7)
	s.publish(every[:2]...)
	stored := replication.Stored{Space: "demo"}
	for _, part := range s.store.Repair(now, stored.Request()) {
		f.Add(part)
	}
	f.Fuzz(func(t *testing.T, part []byte) {
		stored := replication.Stored{Space: "demo"}
		stored.Request()
		if whole, err := stored.Apply(part); whole && err == nil {
			payload.WriteStored(io.Discard, &stored)
		}
	})
}
