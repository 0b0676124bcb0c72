package config_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/dnprelay/dnprelay/internal/config"
)

// patient is a program whose command reports that it drains. With Slow it never ends.
type patient struct {
	Wait waitCommand `cmd:""`
}

type waitCommand struct {
	Slow bool
	config.Logging
}

func (c *waitCommand) Run(ctx context.Context, _ *slog.Logger) error {
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("draining")
	if c.Slow {
		select {}
	}
	return nil
}

// TestMain also runs the process to which TestSignals sends signals.
func TestMain(m *testing.M) {
	if os.Getenv("CONFIG_TEST_PATIENT") != "" {
		os.Exit(config.Program{Name: "patient", Commands: &patient{}}.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func TestSignals(t *testing.T) {
	for _, c := range []struct {
		reason  string
		args    []string
		signals []os.Signal
		code    int
		stderr  string
	}{
		{"the first SIGTERM drains", []string{"wait"}, []os.Signal{syscall.SIGTERM}, config.ExitOK, "a second signal ends the process at once"},
		{"the first SIGINT drains", []string{"wait"}, []os.Signal{os.Interrupt}, config.ExitOK, "signal=interrupt"},
		{"the second ends the process", []string{"wait", "--slow"}, []os.Signal{os.Interrupt, syscall.SIGTERM}, config.ExitFailed,
			"patient: ended at once by a second signal (terminated)\n"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			code, stderr := send(t, c.args, c.signals)
			if code != c.code || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d, want %d, and %q in\n%s", code, c.code, c.stderr, stderr)
			}
		})
	}
}

// send runs the patient, sends a signal after each line that it prints, and returns its
// exit code.
func send(t *testing.T, args []string, signals []os.Signal) (code int, stderr string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "CONFIG_TEST_PATIENT=1")
	var written strings.Builder
	cmd.Stderr = &written
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	for _, s := range signals {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatalf("before %v: %v\n%s", s, err, written.String())
		}
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadAll(lines); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), written.String()
}
