package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
)

// line logs once and returns the fields of the line, each of which must stand
// once.
func line(t *testing.T, project string, log func(*slog.Logger)) map[string]any {
	t.Helper()
	var out bytes.Buffer
	log(slog.New(telemetry.NewHandler(&out, slog.LevelDebug, project)))
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Fatalf("%d lines: %s", n, &out)
	}
	fields := map[string]any{}
	d := json.NewDecoder(&out)
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := fields[name.(string)]; twice {
			t.Errorf("field %v stands twice", name)
		}
		var value any
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		fields[name.(string)] = value
	}
	return fields
}

func TestRecordHasCloudLoggingsFields(t *testing.T) {
	got := line(t, "p", func(l *slog.Logger) { l.Warn("table missing", "table", "t") })
	if got["message"] != "table missing" || got["severity"] != "WARNING" || got["table"] != "t" {
		t.Errorf("got %v", got)
	}
	if _, err := time.Parse(time.RFC3339Nano, got["time"].(string)); err != nil {
		t.Error(err)
	}
	source := got["logging.googleapis.com/sourceLocation"].(map[string]any)
	if !strings.HasSuffix(source["file"].(string), "log_test.go") || source["line"].(float64) == 0 || source["function"] == "" {
		t.Errorf("source location %v", source)
	}
	for _, name := range []string{"msg", "level", "source"} {
		if got[name] != nil {
			t.Errorf("field %q of slog is left", name)
		}
	}
}

func TestLevelBecomesSeverity(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: "DEBUG", slog.LevelDebug + 1: "DEBUG", slog.LevelInfo: "INFO", slog.LevelInfo + 1: "NOTICE",
		slog.LevelWarn: "WARNING", slog.LevelWarn + 1: "WARNING", slog.LevelError: "ERROR", slog.LevelError + 4: "CRITICAL",
	} {
		got := line(t, "", func(l *slog.Logger) { l.Log(context.Background(), level, "") })
		if got["severity"] != want {
			t.Errorf("level %v: severity %v, want %v", level, got["severity"], want)
		}
	}
}

func TestAttributesCannotTakeTheFieldsOfTheRecord(t *testing.T) {
	got := line(t, "", func(l *slog.Logger) {
		l.Info("text", "message", "mine", "severity", "mine", "level", "mine",
			slog.Group("g", "message", "inner", "msg", "inner"))
	})
	if got["message"] != "text" || got["severity"] != "INFO" || got["attr.message"] != "mine" || got["attr.severity"] != "mine" {
		t.Errorf("got %v", got)
	}
	if want := map[string]any{"message": "inner", "msg": "inner"}; !reflect.DeepEqual(got["g"], want) {
		t.Errorf("group %v, want %v", got["g"], want)
	}
}

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

func TestRecordNamesTheTraceOfItsRequest(t *testing.T) {
	type fields struct {
		trace, span, sampled any
	}
	named := func(span any, sampled bool) fields {
		return fields{"projects/p/traces/" + traceID, span, sampled}
	}
	for _, c := range []struct {
		name, parent, cloud, project string
		want                         fields
	}{
		{"W3C", "00-" + traceID + "-" + spanID + "-01", "", "p", named(spanID, true)},
		{"W3C, not sampled", "00-" + traceID + "-" + spanID + "-00", "", "p", named(spanID, false)},
		{"W3C of a later version", "01-" + traceID + "-" + spanID + "-01-more", "", "p", named(spanID, true)},
		{"Google's", "", traceID + "/67667974448284343;o=1", "p", named(spanID, true)},
		{"Google's without a span", "", traceID, "p", named(nil, false)},
		{"both", "00-" + traceID + "-" + spanID + "-01", strings.Repeat("1", 32) + "/5;o=0", "p", named(spanID, true)},
		{"a bad W3C one beside Google's", "00-xyz", traceID + "/67667974448284343;o=1", "p", named(spanID, true)},
		{"no project", "00-" + traceID + "-" + spanID + "-01", "", "", fields{}},
		{"no header", "", "", "p", fields{}},
		{"zero trace", "00-" + strings.Repeat("0", 32) + "-" + spanID + "-01", "", "p", fields{}},
		{"version ff", "ff-" + traceID + "-" + spanID + "-01", "", "p", fields{}},
		{"bad flags", "00-" + traceID + "-" + spanID + "-zz", "", "p", fields{}},
		{"upper case", "00-" + strings.ToUpper(traceID) + "-" + spanID + "-01", "", "p", fields{}},
		{"an injected path", "", "x/../../y", "p", fields{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, grouped := range []bool{false, true} {
				got := line(t, c.project, func(l *slog.Logger) {
					if grouped {
						l = l.With("a", 1).WithGroup("g").With("b", 2)
					}
					serve(c.parent, c.cloud, func(ctx context.Context) { l.InfoContext(ctx, "x", "c", 3) })
				})
				is := fields{got["logging.googleapis.com/trace"], got["logging.googleapis.com/spanId"], got["logging.googleapis.com/trace_sampled"]}
				if is != c.want {
					t.Errorf("grouped=%t: got %v, want %v", grouped, is, c.want)
				}
				if want := (map[string]any{"b": 2.0, "c": 3.0}); grouped && (!reflect.DeepEqual(got["g"], want) || got["a"] != 1.0) {
					t.Errorf("attributes %v", got)
				}
			}
		})
	}
}

// serve calls fn with the context of a request with the headers.
func serve(parent, cloud string, fn func(context.Context)) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	if parent != "" {
		r.Header.Set("traceparent", parent)
	}
	if cloud != "" {
		r.Header.Set("X-Cloud-Trace-Context", cloud)
	}
	telemetry.Trace(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fn(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), r)
}

func TestLevelBelowTheMinimumIsNotWritten(t *testing.T) {
	var out bytes.Buffer
	slog.New(telemetry.NewHandler(&out, slog.LevelWarn, "p")).WithGroup("g").Info("no")
	if out.Len() > 0 {
		t.Errorf("written: %s", &out)
	}
}

func TestFieldsThatSayNothingAreLeftOut(t *testing.T) {
	got := line(t, "", func(l *slog.Logger) {
		l.With("scan", "", "table", "t").WithGroup("of").Info("done", "error", error(nil), "text", "", "list", []string{}, "map", map[string]int{},
			"at", time.Time{}, "pointer", (*int)(nil), "none", nil, "zero", 0, "no", false, "took", time.Duration(0), slog.Group("inner", "a", ""))
	})
	delete(got, "time")
	want := map[string]any{"severity": "INFO", "message": "done", "table": "t", "of": map[string]any{"zero": 0.0, "no": false, "took": 0.0}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
