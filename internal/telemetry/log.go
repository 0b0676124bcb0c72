package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/trace"
)

// Logger returns log with two additions: lines that belong to a sampled update carry its
// trace_id and span_id, and the collector receives all lines that log writes if
// OTEL_LOGS_EXPORTER asks for that.
func (t *Telemetry) Logger(log *slog.Logger) *slog.Logger {
	if t == nil || t.traces == nil && t.logs == nil {
		return log
	}
	var h slog.Handler = traceHandler{log.Handler()}
	if t.logs != nil {
		h = slog.NewMultiHandler(h, levelHandler{otelslog.NewHandler(scope, otelslog.WithLoggerProvider(t.logs)), log.Handler()})
	}
	return slog.New(h)
}

// A traceHandler adds the ids of the span in the context of a line.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", c.TraceID().String()), slog.String("span_id", c.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}

// A levelHandler takes the lines that another handler takes.
type levelHandler struct {
	slog.Handler
	level slog.Handler
}

func (h levelHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.level.Enabled(ctx, l)
}

func (h levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelHandler{h.Handler.WithAttrs(attrs), h.level}
}

func (h levelHandler) WithGroup(name string) slog.Handler {
	return levelHandler{h.Handler.WithGroup(name), h.level}
}
