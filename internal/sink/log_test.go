package sink_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
)

func TestTheLogHasALineForEachRecord(t *testing.T) {
	var out bytes.Buffer
	s := sink.NewLog(slog.New(telemetry.NewHandler(&out, slog.LevelInfo, "")))
	a := relay.Record{Key: "a", Body: []byte(`{"n":1}`)}
	errs := s.Send(t.Context(), []relay.Record{a, {Key: "b", Body: bytes.Repeat([]byte("1"), 300<<10)}})
	var rejected *retry.Rejected
	if len(errs) != 2 || errs[0] != nil || !errors.As(errs[1], &rejected) {
		t.Errorf("errors %v", errs)
	}
	var line struct {
		Severity, RecordID string
		Record             struct{ N int }
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Severity != "INFO" || line.RecordID != a.ID() || line.Record.N != 1 {
		t.Errorf("%s: %v", out.String(), err)
	}
}

func TestALogThatCannotBeWrittenFailsTheRecord(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	s := sink.NewLog(slog.New(telemetry.NewHandler(w, slog.LevelInfo, "")))
	if errs := s.Send(t.Context(), []relay.Record{{Key: "a", Body: []byte(`{"n":1}`)}}); len(errs) != 1 || !errors.Is(errs[0], syscall.EPIPE) {
		t.Errorf("errors %v, want a broken pipe", errs)
	}
}
