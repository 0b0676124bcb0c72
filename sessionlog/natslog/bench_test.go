package natslog

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// blockBytes is about the size of the write for one message.
const blockBytes = 100

func benchStore(b *testing.B) (*natstest.Cluster, *Log) {
	c := natstest.Start(b, 1)
	return c, open(b, Config{Conn: c.Connect(b), InFlight: 16384, Timeout: 10 * time.Second})
}

// BenchmarkAppend has one write under way for each of some sessions, as the product has, and a
// checkpoint every 32 writes.
func BenchmarkAppend(b *testing.B) {
	_, l := benchStore(b)
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("R1/sessions%d", n), func(b *testing.B) { appendLoop(b, l, n) })
	}
}

// BenchmarkCopy is BenchmarkAppend for a copy with some streams.
func BenchmarkCopy(b *testing.B) {
	for _, streams := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("streams%d", streams), func(b *testing.B) {
			c := natstest.Start(b, Copies)
			l := openCopy(b, Config{Conn: c.Connect(b), Copy: 1, Streams: streams, InFlight: 16384, Timeout: 10 * time.Second})
			for _, n := range []int{1, 16, 256} {
				b.Run(fmt.Sprintf("sessions%d", n), func(b *testing.B) { appendLoop(b, l, n) })
			}
		})
	}
}

// BenchmarkSync measures what it costs if a server writes to the disk more often than every two minutes.
func BenchmarkSync(b *testing.B) {
	for name, change := range map[string]func(*server.Options){
		"default":     func(*server.Options) {},
		"everySecond": func(o *server.Options) { o.SyncInterval = time.Second },
		"always":      func(o *server.Options) { o.SyncAlways = true },
	} {
		b.Run(name, func(b *testing.B) {
			c := natstest.Start(b, Copies, change)
			l := openCopy(b, Config{Conn: c.Connect(b), Copy: 1, InFlight: 16384, Timeout: 10 * time.Second})
			for _, n := range []int{1, 16, 256} {
				b.Run(fmt.Sprintf("sessions%d", n), func(b *testing.B) { appendLoop(b, l, n) })
			}
		})
	}
}

type done struct {
	session int
	answer  sessionlog.Answer
}

func appendLoop(b *testing.B, l *Log, n int) {
	seqs, counts, since := make([]uint64, n), make([]int, n), make([]time.Time, n)
	answers := make(chan done, n)
	name := strconv.FormatInt(time.Now().UnixNano(), 36)
	data := make([]byte, blockBytes)
	ask := func(i int) {
		since[i] = time.Now()
		w := sessionlog.Write{Log: fmt.Sprintf("%s-%d", name, i), Expect: seqs[i], Data: data, Rollup: counts[i]%32 == 0}
		counts[i]++
		l.Append(w, func(a sessionlog.Answer) { answers <- done{i, a} })
	}
	for i := range n {
		ask(i)
	}
	var times []time.Duration
	b.ResetTimer()
	for range b.N {
		d := <-answers
		if d.answer.Verdict != fence.OK {
			b.Fatalf("answered %v", d.answer.Verdict)
		}
		times = append(times, time.Since(since[d.session]))
		seqs[d.session] = d.answer.Seq
		ask(d.session)
	}
	b.StopTimer()
	for range n {
		<-answers
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

// BenchmarkTogether compares two ways to store writes of many sessions of one log shard:
// single publishes in one flush, and an atomic batch, which one stale write fails as a whole.
func BenchmarkTogether(b *testing.B) {
	c, l := benchStore(b)
	for _, n := range []int{8, 64, 256} {
		b.Run(fmt.Sprintf("R1/publishes%d", n), func(b *testing.B) { together(b, l, n) })
		b.Run(fmt.Sprintf("R1/atomic%d", n), func(b *testing.B) { atomically(b, c, n) })
	}
}

// sameShard returns n names of logs in log shard 0.
func sameShard(n int) (all []string) {
	name := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := 0; len(all) < n; i++ {
		if log := fmt.Sprintf("%s-%d", name, i); sessionlog.Shard(log, 64) == 0 {
			all = append(all, log)
		}
	}
	return all
}

func together(b *testing.B, l *Log, n int) {
	writes := make([]sessionlog.Write, n)
	for i, log := range sameShard(n) {
		writes[i] = sessionlog.Write{Log: log, Data: make([]byte, blockBytes)}
	}
	type reply struct {
		i int
		a sessionlog.Answer
	}
	answers := make(chan reply, n)
	for k := 0; b.Loop(); k++ {
		for i, w := range writes {
			l.Append(w, func(a sessionlog.Answer) { answers <- reply{i, a} })
		}
		for range n {
			r := <-answers
			if r.a.Verdict != fence.OK {
				b.Fatalf("answered %v", r.a.Verdict)
			}
			writes[r.i].Expect, writes[r.i].Rollup = r.a.Seq, k%32 == 31
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "writes/s")
}

func atomically(b *testing.B, c *natstest.Cluster, n int) {
	nc := c.Connect(b)
	js, err := natsjs.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	subject := "bench" + strconv.Itoa(n)
	if _, err := js.CreateOrUpdateStream(b.Context(), natsjs.StreamConfig{
		Name: subject, Subjects: []string{subject + ".*"}, AllowAtomicPublish: true, AllowRollup: true,
	}); err != nil {
		b.Fatal(err)
	}
	first := uint64(0)
	for k := 0; b.Loop(); k++ {
		var last *nats.Msg
		for i := range n {
			expect := uint64(0)
			if first > 0 {
				expect = first + uint64(i)
			}
			last = &nats.Msg{Subject: fmt.Sprintf("%s.%d", subject, i), Data: make([]byte, blockBytes), Header: nats.Header{
				natsjs.ExpectedLastSubjSeqHeader: {strconv.FormatUint(expect, 10)},
				"Nats-Batch-Id":                  {fmt.Sprint(b.N, k)}, "Nats-Batch-Sequence": {strconv.Itoa(i + 1)},
			}}
			if k%32 == 31 {
				last.Header.Set(natsjs.MsgRollup, "sub")
			}
			if i < n-1 && nc.PublishMsg(last) != nil {
				b.Fatal("not sent")
			}
		}
		last.Header.Set("Nats-Batch-Commit", "1")
		m, err := nc.RequestMsg(last, 10*time.Second)
		if err != nil {
			b.Fatal(err)
		}
		ack, ok := jetstream.ParseAck(m.Data)
		if !ok || ack.Code != 0 {
			b.Fatalf("%s", m.Data)
		}
		first = ack.Seq - uint64(n) + 1
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "writes/s")
}

// BenchmarkRead reads logs with some writes since the checkpoint.
func BenchmarkRead(b *testing.B) {
	_, l := benchStore(b)
	for _, n := range []int{1, 16, 33} {
		b.Run(fmt.Sprintf("R1/writes%d", n), func(b *testing.B) {
			log, seq := strconv.FormatInt(time.Now().UnixNano(), 36), uint64(0)
			answers := make(chan sessionlog.Answer, 1)
			for k := range n {
				w := sessionlog.Write{Log: log, Expect: seq, Data: make([]byte, blockBytes), Rollup: k == 0}
				l.Append(w, func(a sessionlog.Answer) { answers <- a })
				seq = (<-answers).Seq
			}
			for b.Loop() {
				l.Read(log, func(a sessionlog.Answer) { answers <- a })
				if a := <-answers; len(a.Entries) != n {
					b.Fatalf("%v with %d entries", a.Verdict, len(a.Entries))
				}
			}
		})
	}
}
