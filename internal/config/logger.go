package config

import (
	"io"
	"log/slog"
)

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

// Logger returns a logger that writes what l asks for to w.
func (l Logging) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: levels[l.LogLevel]}
	if l.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
