package systest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// misses waits until both edges say that they are ready, and miss just this.
func (r *rescue) misses(what ...string) {
	r.Helper()
	for _, web := range r.webs {
		eventually(r.T, "ready, and missing "+strings.Join(what, ", "), func() bool {
			h, status := readiness(r.T, web)
			return status == http.StatusOK && h.Ready && slices.Equal(h.Missing, what)
		})
	}
}

// TestRescueWithoutRedis has no Redis when the edges start. They serve, say that it is
// missing, and look after a session whose edge dies by the log alone. Redis may come, and
// go again.
func TestRescueWithoutRedis(t *testing.T) {
	addr := freePorts(t, 1)[0]
	r := newRescueAt(t, "redis://"+addr)
	r.misses("redis")
	r.talk(10)
	r.shows(0, `dnp_session_affinity_writes_total`, 0)

	server := startRedisAt(t, addr)
	r.misses()
	eventually(t, "the session is claimed, although it began before", func() bool { return r.metric(0, `dnp_session_affinity_writes_total`) > 0 })
	r.talk(10)

	server.kill()
	r.misses("redis")
	r.edges[0].kill()
	r.route(1)
	r.talk(20)
	r.shows(1, `dnp_session_adopted_total`, 1)
}
