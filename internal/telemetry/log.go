// Package telemetry guarantees that every log record is one JSON line in the
// fields Cloud Logging reads: severity, message, time, from WARNING up the source
// location, and the trace of the request whose context it was logged with. No field is empty.
package telemetry

import (
	"context"
	"io"
	"log/slog"
	"reflect"
	"slices"
)

// Field names with a meaning to Cloud Logging.
// Source: https://cloud.google.com/logging/docs/structured-logging
const (
	keySeverity = "severity"
	keyMessage  = "message"
	keySource   = "logging.googleapis.com/sourceLocation"
	keyTrace    = "logging.googleapis.com/trace"
	keySpan     = "logging.googleapis.com/spanId"
	keySampled  = "logging.googleapis.com/trace_sampled"
)

// NewHandler writes records of at least the given level to w. The project is
// the one that traces belong to; without it records carry no trace. An
// attribute of the record that bears one of the names above gets the prefix
// "attr.", so that no line has a name twice.
func NewHandler(w io.Writer, level slog.Leveler, project string) slog.Handler {
	return &handler{
		Handler: slog.NewJSONHandler(w, &slog.HandlerOptions{AddSource: true, Level: level, ReplaceAttr: rename}),
		project: project,
	}
}

// rename turns the names of slog into those of Cloud Logging.
// An attribute that says nothing is left out.
func rename(groups []string, a slog.Attr) slog.Attr {
	top := len(groups) == 0
	if isEmpty(a.Value) && !(top && a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	if !top {
		return a
	}
	switch a.Key {
	case slog.MessageKey:
		a.Key = keyMessage
	case slog.SourceKey:
		a.Key = keySource
	case slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok {
			return slog.String(keySeverity, severity(level))
		}
	case keySeverity, keyMessage, keySource:
		a.Key = "attr." + a.Key
	}
	return a
}

// isEmpty reports whether a value says nothing: no text, nothing at all, a list or map
// without a part, the zero time. A zero number says something.
func isEmpty(v slog.Value) bool {
	switch v.Kind() {
	case slog.KindString:
		return v.String() == ""
	case slog.KindTime:
		return v.Time().IsZero()
	case slog.KindAny:
		if v.Any() == nil {
			return true
		}
		switch r := reflect.ValueOf(v.Any()); r.Kind() {
		case reflect.Slice, reflect.Map:
			return r.Len() == 0
		case reflect.Pointer:
			return r.IsNil()
		}
	}
	return false
}

// severity maps slog's levels, and those between and above them, to Cloud
// Logging's.
func severity(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "DEBUG"
	case l == slog.LevelInfo:
		return "INFO"
	case l < slog.LevelWarn:
		return "NOTICE"
	case l < slog.LevelError:
		return "WARNING"
	case l == slog.LevelError:
		return "ERROR"
	}
	return "CRITICAL"
}

// handler adds the trace to what the JSON handler writes.
type handler struct {
	slog.Handler // with everything in since applied
	project      string
	// base and since replay what was asked for from the first group on: the
	// trace must stand outside of every group.
	base  slog.Handler
	since []func(slog.Handler) slog.Handler
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		r.PC = 0 // what nobody has to act on need not say where it was written
	}
	attrs := h.trace(ctx)
	if len(attrs) == 0 {
		return h.Handler.Handle(ctx, r)
	}
	if h.base == nil {
		r = r.Clone()
		r.AddAttrs(attrs...)
		return h.Handler.Handle(ctx, r)
	}
	out := h.base.WithAttrs(attrs)
	for _, apply := range h.since {
		out = apply(out)
	}
	return out.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if h.base == nil {
		return &handler{Handler: h.Handler.WithAttrs(attrs), project: h.project}
	}
	return h.with(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.with(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (h *handler) with(apply func(slog.Handler) slog.Handler) slog.Handler {
	base := h.base
	if base == nil {
		base = h.Handler
	}
	return &handler{
		Handler: apply(h.Handler), project: h.project,
		base: base, since: append(slices.Clip(h.since), apply),
	}
}

func (h *handler) trace(ctx context.Context) []slog.Attr {
	if h.project == "" {
		return nil
	}
	headers, ok := ctx.Value(traceKey{}).(traceHeaders)
	if !ok {
		return nil
	}
	t, ok := headers.parse()
	if !ok {
		return nil
	}
	attrs := []slog.Attr{slog.String(keyTrace, "projects/"+h.project+"/traces/"+t.trace)}
	if t.span != "" {
		attrs = append(attrs, slog.String(keySpan, t.span))
	}
	return append(attrs, slog.Bool(keySampled, t.sampled))
}
