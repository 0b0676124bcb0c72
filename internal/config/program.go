package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes of every command.
const (
	ExitOK     = 0 // drained, or done
	ExitFailed = 1 // one line says why
	ExitUsage  = 2 // bad configuration; the program lists every problem
)

// A Program is one binary.
type Program struct {
	Name     string
	Help     string    // one paragraph for --help
	Commands any       // pointer to a struct of commands, see package kong
	Stdout   io.Writer // nil = os.Stdout
	Stderr   io.Writer // nil = os.Stderr
}

// A Runner is a command. Run returns when the context has ended and everything that the
// command started has ended in order, or with the reason why it cannot go on.
type Runner interface {
	Run(ctx context.Context, log *slog.Logger) error
}

// A UsageError is a problem with arguments that Run found. The exit code is 2.
type UsageError struct{ Problem string }

func (e *UsageError) Error() string { return e.Problem }

// Main parses args, runs the selected command until it is done or has drained after a
// signal, and returns the exit code.
func (p Program) Main(args []string) int {
	p.Stdout, p.Stderr = cmp.Or[io.Writer](p.Stdout, os.Stdout), cmp.Or[io.Writer](p.Stderr, os.Stderr)
	command, misspelt, code := p.configure(args)
	if command == nil {
		return code
	}
	log := slog.New(slog.DiscardHandler)
	warn := func(line string) { fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, line) }
	if l, ok := command.(interface{ Logger(io.Writer) *slog.Logger }); ok {
		log = l.Logger(p.Stderr)
		warn = func(line string) { log.Warn(line) }
	}
	for _, line := range misspelt {
		warn(line)
	}
	ctx, stop := drainOnSignal(log, p.Name, p.Stderr)
	defer stop()
	return p.report(command.Run(ctx, log))
}

// configure returns the command to run with warnings about the environment, or nil and the exit
// code.
func (p Program) configure(args []string) (command Runner, misspelt []string, code int) {
	parser, err := newParser(p)
	if err != nil {
		panic(err) // the flag structs of this program contradict each other
	}
	bare := parser.wantsCommand(args)
	if bare { // the help says more than an error would
		parser.kong.Stdout, args = p.Stderr, append(slices.Clone(args), "--help")
	}
	ctx, problems, err := parser.parse(args)
	switch {
	case bare:
		return nil, nil, ExitUsage
	case errors.Is(err, errHelp):
		return nil, nil, ExitOK
	case len(problems) > 0:
		for _, line := range parser.misspelt(os.Environ()) { // it may be why something is missing
			fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, line)
		}
		p.printProblems(problems, parser.helpCommand(p.Name))
		return nil, nil, ExitUsage
	}
	command = selected(ctx)
	if c, ok := command.(interface{ SetModel(*kong.Application) }); ok { // a command about the commands
		c.SetModel(ctx.Model)
	}
	return command, parser.misspelt(os.Environ()), ExitOK
}

func selected(ctx *kong.Context) Runner {
	target := ctx.Model.Target
	if node := ctx.Selected(); node != nil {
		target = node.Target
	}
	r, ok := target.Addr().Interface().(Runner)
	if !ok {
		panic(fmt.Sprintf("command %q has no Run method", ctx.Command()))
	}
	return r
}

func (p Program) printProblems(problems Problems, help string) {
	if len(problems) == 1 {
		fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, problems[0])
	} else {
		fmt.Fprintf(p.Stderr, "%s: %d problems:\n", p.Name, len(problems))
		for _, line := range problems {
			fmt.Fprintf(p.Stderr, "  %s\n", line)
		}
	}
	fmt.Fprintf(p.Stderr, "%s explains every flag.\n", help)
}

func (p Program) report(err error) int {
	_, usage := errors.AsType[*UsageError](err)
	switch {
	case err == nil:
		return ExitOK
	case usage:
		p.printProblems(Problems{err.Error()}, p.Name+" --help")
		return ExitUsage
	}
	line := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
	fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, line)
	return ExitFailed
}

// repeatedWithin is how soon after the first signal the same one again is a repetition, because
// programs such as timeout of coreutils signal a child and then its process group. The value is
// arbitrary.
const repeatedWithin = 500 * time.Millisecond

// repeats reports whether a signal is a repetition of the first one, which came some time before.
func repeats(s, first os.Signal, after time.Duration) bool {
	return s == first && after < repeatedWithin
}

// drainOnSignal returns a context that ends at the first SIGINT or SIGTERM. A later one ends the
// process at once, for operators whose drain takes too long.
func drainOnSignal(log *slog.Logger, name string, stderr io.Writer) (context.Context, func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var first os.Signal
		var at time.Time
		for s := range signals {
			if ctx.Err() != nil {
				if repeats(s, first, time.Since(at)) {
					continue
				}
				fmt.Fprintf(stderr, "%s: ended at once by a second signal (%s)\n", name, s)
				os.Exit(ExitFailed)
			}
			log.Info("draining; a second signal ends the process at once", "signal", s.String())
			first, at = s, time.Now()
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel()
	}
}
