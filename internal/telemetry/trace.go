package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

type traceKey struct{}

// traceHeaders are kept as they came: most requests log nothing, and need no
// parsing.
type traceHeaders struct {
	parent string // traceparent, of W3C
	cloud  string // X-Cloud-Trace-Context, of Google's older front ends
}

// Trace lets records that are logged with a request's context name the trace
// that the request is part of.
func Trace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := traceHeaders{parent: r.Header.Get("Traceparent"), cloud: r.Header.Get("X-Cloud-Trace-Context")}
		if h != (traceHeaders{}) {
			r = r.WithContext(context.WithValue(r.Context(), traceKey{}, h))
		}
		next.ServeHTTP(w, r)
	})
}

// trace is a trace's 32 and a span's 16 hexadecimal digits; span may be empty.
type trace struct {
	trace, span string
	sampled     bool
}

func (h traceHeaders) parse() (trace, bool) {
	if t, ok := parseParent(h.parent); ok {
		return t, true
	}
	return parseCloud(h.cloud)
}

// parseParent reads version-trace-span-flags.
// Source: https://www.w3.org/TR/trace-context/#traceparent-header
func parseParent(s string) (trace, bool) {
	parts := strings.Split(s, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" {
		return trace{}, false
	}
	if !isID(parts[1], 32) || !isID(parts[2], 16) || len(parts[3]) != 2 {
		return trace{}, false
	}
	flags, err := strconv.ParseUint(parts[3], 16, 8)
	if err != nil {
		return trace{}, false
	}
	return trace{trace: parts[1], span: parts[2], sampled: flags&1 == 1}, true
}

// parseCloud reads TRACE[/SPAN][;o=OPTIONS], where the span is a decimal number.
// Source: https://cloud.google.com/trace/docs/trace-context#legacy-http-header
func parseCloud(s string) (trace, bool) {
	ids, options, _ := strings.Cut(s, ";")
	id, span, _ := strings.Cut(ids, "/")
	if !isID(id, 32) {
		return trace{}, false
	}
	t := trace{trace: id, sampled: options == "o=1"}
	if n, err := strconv.ParseUint(span, 10, 64); err == nil && n > 0 {
		t.span = fmt.Sprintf("%016x", n)
	}
	return t, true
}

// isID reports whether s is n lower-case hexadecimal digits, not all zero.
func isID(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
}
