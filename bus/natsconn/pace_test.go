package natsconn

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A scriptedConn gives bytes to each read as its script says.
type scriptedConn struct {
	net.Conn
	script []scripted
}

type scripted struct {
	after time.Duration // the read began
	n     int
}

func (c *scriptedConn) Read([]byte) (int, error) {
	next := c.script[0]
	c.script = c.script[1:]
	time.Sleep(next.after)
	return next.n, nil
}

// TestPacedConn wants a pause after reads that follow one another, but not after those that filled the buffer.
func TestPacedConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := []scripted{{0, 3}, {0, 4}, {0, 8}, {0, 8}, {49 * time.Millisecond, 5}, {10 * time.Millisecond, 6}, {100 * time.Millisecond, 7}, {0, 2}}
		c := &pacedConn{Conn: &scriptedConn{script: script}, every: 50 * time.Millisecond}
		began := time.Now()
		var got []string
		for range script {
			n, err := c.Read(make([]byte, 8))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(n, " at ", time.Since(began)))
		}
		want := []string{
			"3 at 0s", "4 at 0s", // the first one followed none
			"8 at 50ms", "8 at 50ms", "5 at 99ms", // what fills the buffer comes at once
			"6 at 159ms", "7 at 309ms", // each after a pause
			"2 at 309ms", // no pause: the one before came late
		}
		if !slices.Equal(got, want) {
			t.Errorf("bytes and times of reads: %q, want %q", got, want)
		}
	})
}
