package natstest

import (
	"testing"

	"go.uber.org/goleak"
)

// inServer is the package of nats-server in the names of its functions.
const inServer = "github.com/nats-io/nats-server/v2/server"

// VerifyNoLeaks runs all tests of a package and fails if goroutines are left, except for two that a
// nats-server leaves if it is shut down while it makes a stream.
func VerifyNoLeaks(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(inServer+".(*fileStore).flushStreamStateLoop"), goleak.IgnoreAnyFunction(inServer+"/ats.Register.func1"))
}
