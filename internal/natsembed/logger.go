package natsembed

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// A logger passes the server's messages to slog and keeps its fatal error. The server calls it from many
// goroutines.
type logger struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func newLogger(log *slog.Logger) *logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logger{log: log}
}

func (l *logger) reason() string {
	if p := l.fatal.Load(); p != nil {
		return *p
	}
	return fmt.Sprintf("not ready after %v", readyTimeout)
}

func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &text)
	l.log.Error("NATS server: " + text)
}

func (l *logger) Errorf(format string, v ...any) {
	l.log.Error("NATS server: " + fmt.Sprintf(format, v...))
}

func (l *logger) Warnf(format string, v ...any) {
	l.log.Warn("NATS server: " + fmt.Sprintf(format, v...))
}

// Noticef, Debugf and Tracef drop messages below warnings.
func (l *logger) Noticef(string, ...any) {}
func (l *logger) Debugf(string, ...any)  {}
func (l *logger) Tracef(string, ...any)  {}
