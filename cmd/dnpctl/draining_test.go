package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// A drainingEdge loses a session each time that its metrics are read after POST /drain.
// Without sessions it ends, or another process starts in its place if end is "restarted". If
// end is "stuck", it keeps its sessions and does not end.
type drainingEdge struct {
	answer, end string

	mu       sync.Mutex // requests come from several goroutines
	listener net.Listener
	drained  bool
	sessions int
	started  int
}

// startDraining is the command `draining NAME ANSWER SESSIONS [restarted|stuck]` of scripts: it
// sets $NAME to the address of such an edge.
func startDraining(ts *testscript.TestScript, _ bool, args []string) {
	l := &drainingEdge{answer: args[1], started: 1}
	var err error
	l.sessions, err = strconv.Atoi(args[2])
	ts.Check(err)
	if len(args) > 3 {
		l.end = args[3]
	}
	l.listener, err = net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	server := &http.Server{Handler: l}
	go server.Serve(l.listener)
	ts.Defer(func() { server.Close() })
	ts.Setenv(args[0], l.listener.Addr().String())
}

func (l *drainingEdge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method == http.MethodPost {
		l.drained = true
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"sessions":%q}`, l.answer)
		return
	}
	switch {
	case !l.drained || l.end == "stuck":
	case l.sessions >= 0:
		defer func() { l.sessions-- }()
	case l.end == "restarted":
		l.started, l.sessions = 2, 0
	default:
		l.listener.Close()
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "# TYPE dnp_edge_sessions gauge\ndnp_edge_sessions %d\ndnp_edge_sessions_max 9\nprocess_start_time_seconds %d\n", l.sessions, l.started)
}
