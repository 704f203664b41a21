package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// sinkLine is where an example sends what it scans and the changes that it reads.
var sinkLine = regexp.MustCompile(`(?m)^    to: \{.*$`)

// workTime bounds what a second is enough for on a quiet machine.
const workTime = time.Minute

// exampleEvents are the events of an example, a message each.
func exampleEvents(t *testing.T, dir string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, pattern := range []string{"*.json", "*.ndjson", "messages/*.json"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if pattern != "*.ndjson" {
				out = append(out, b)
				continue
			}
			for _, line := range slices.Collect(strings.Lines(string(b)))[:20] {
				out = append(out, []byte(line))
			}
		}
	}
	return out
}

// privileged is a deployment on an emulator that enforces IAM policies, whose functions have
// the grants that a test gives them.
type privileged struct {
	t      *testing.T
	loaded *lint.Loaded
	*localdeploy.Deployment

	written, scanned     atomic.Int64 // rows, and scans that are done
	records, scanRecords atomic.Int64 // of scans and change streams, and of scans alone
	denied               chan string  // principals that were refused something
}

// principalOf is a function as a policy names it.
func principalOf(p *pipeline.Pipeline, function lint.Principal) string {
	return fmt.Sprintf("serviceAccount:%s-%s@p.iam.gserviceaccount.com", p.Name, function)
}

// counting counts what is logged.
type counting struct {
	slog.Handler
	n *atomic.Int64
}

func (h counting) Enabled(context.Context, slog.Level) bool { return true }

func (h counting) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h counting) Handle(context.Context, slog.Record) error {
	h.n.Add(1)
	return nil
}

// deniedLog passes on the principals that the emulator says it has refused.
type deniedLog struct {
	slog.Handler
	denied chan<- string
}

func (h deniedLog) Enabled(context.Context, slog.Level) bool { return true }

func (h deniedLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "principal" {
			select {
			case h.denied <- a.Value.String():
			default: // the test has enough of them
			}
		}
		return true
	})
	return nil
}

// deployPrivileged deploys a file whose functions have these grants on Bigtable.
func deployPrivileged(t *testing.T, file []byte, grants []lint.Grant) *privileged {
	t.Helper()
	loaded, findings := lint.Load(file, pipeline.Options{File: "pipeline.yaml"})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	d := &privileged{t: t, loaded: loaded, denied: make(chan string, 100)}
	place := ledger.Location{Path: filepath.Join(t.TempDir(), "ledger.db")}
	open := func(ctx context.Context) (*ledger.Ledger, error) {
		l, closeLedger, err := assemble.OpenLedger(ctx, place, loaded.Pipeline.Name, ledger.Options{})
		if err == nil {
			t.Cleanup(func() { closeLedger() })
		}
		return l, err
	}
	var err error
	d.Deployment, err = localdeploy.Start(t.Context(), loaded, localdeploy.Options{
		Logger: slog.New(slog.DiscardHandler), Records: slog.New(counting{slog.DiscardHandler, &d.records}), OpenLedger: open,
		Holder:    process.Self(),
		Emulation: emulator.Options{EnforceIAM: true, Logger: slog.New(deniedLog{slog.DiscardHandler, d.denied})},
		Principal: func(f lint.Principal) string { return principalOf(loaded.Pipeline, f) },
		Reports: func(int) assemble.Reports {
			return assemble.Reports{Write: func(_ context.Context, s write.Summary) { d.written.Add(int64(s.Applied)) }}
		},
		Finished: func(s task.ScanDone) {
			if s.State == "done" {
				d.scanned.Add(1)
				d.scanRecords.Add(s.Records)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	d.grant(grants)
	return d
}

// grant sets the policies of tables and instances.
func (d *privileged) grant(grants []lint.Grant) {
	d.t.Helper()
	conn, err := d.Emulator.Dial(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	policies := map[lint.Target]*iampb.Policy{}
	for _, g := range grants {
		if policies[g.On] == nil {
			policies[g.On] = &iampb.Policy{}
		}
		policies[g.On].Bindings = append(policies[g.On].Bindings, &iampb.Binding{Role: g.Role, Members: []string{principalOf(d.loaded.Pipeline, g.Principal)}})
	}
	for on, p := range policies {
		req := &iampb.SetIamPolicyRequest{Resource: on.Name, Policy: p}
		if on.Kind == "instance" {
			_, err = adminpb.NewBigtableInstanceAdminClient(conn).SetIamPolicy(d.t.Context(), req)
		} else {
			_, err = adminpb.NewBigtableTableAdminClient(conn).SetIamPolicy(d.t.Context(), req)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

// work publishes the example's events, requests its scans and sends ticks until done or until
// something was refused. It returns the principal that was, if any.
func (d *privileged) work(events [][]byte, done func() bool) (denied string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), workTime)
	defer cancel()
	p := d.loaded.Pipeline
	// A change stream is read from now on: its positions must be there before the first row.
	d.tick(ctx)
	publisher := d.Client.Publisher(p.Name + "-events")
	defer publisher.Stop()
	for _, e := range events {
		if _, err := publisher.Publish(ctx, &pubsub.Message{Data: e}).Get(ctx); err != nil {
			d.t.Fatal(err)
		}
	}
	requested := false
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		if !requested && d.written.Load() >= int64(len(events)) {
			requested = true
			d.requestScans(ctx)
		}
		select {
		case denied := <-d.denied:
			return denied
		case <-ctx.Done():
			d.t.Fatalf("%d rows were written, %d scans are done and %d records came, %d of them of scans", d.written.Load(), d.scanned.Load(), d.records.Load(), d.scanRecords.Load())
		case <-ticker.C:
			d.tick(ctx)
		}
	}
	select {
	case denied := <-d.denied:
		return denied
	default:
		return ""
	}
}

func (d *privileged) tick(ctx context.Context) {
	// A tick that is refused something fails; the emulator's log says so.
	_ = d.Tick(ctx, d.loaded.Pipeline.Name)
}

func (d *privileged) requestScans(ctx context.Context) {
	d.t.Helper()
	publisher := d.Client.Publisher(d.loaded.Pipeline.Name + "-scan-requests")
	defer publisher.Stop()
	for _, s := range d.loaded.Pipeline.Scans {
		if _, err := publisher.Publish(ctx, &pubsub.Message{Data: fmt.Appendf(nil, `{"scan":%q}`, s.Name)}).Get(ctx); err != nil {
			d.t.Fatal(err)
		}
	}
}

// bigtableGrants loads a file and returns the grants on Bigtable that it needs.
func bigtableGrants(t *testing.T, file []byte) (*lint.Loaded, []lint.Grant) {
	t.Helper()
	loaded, findings := lint.Load(file, pipeline.Options{File: "pipeline.yaml"})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return loaded, slices.DeleteFunc(slices.Clone(loaded.Report.Grants), func(g lint.Grant) bool {
		return g.On.Kind != "table" && g.On.Kind != "instance" && g.On.Kind != "authorizedView"
	})
}

// The grants on Bigtable that lint prints are enough for each function of each example, and
// without any one of them the function that has it is refused something.
func TestTheGrantsThatLintPrintsAreEnoughAndNeeded(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/pipeline.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(filepath.Dir(name)), func(t *testing.T) {
			file, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			file = sinkLine.ReplaceAll(file, []byte("    to: {log: {}}"))
			loaded, grants := bigtableGrants(t, file)
			events := exampleEvents(t, filepath.Dir(name))
			t.Run("all", func(t *testing.T) {
				d := deployPrivileged(t, file, grants)
				done := func() bool {
					return d.written.Load() >= int64(len(events)) && d.scanned.Load() >= int64(len(loaded.Pipeline.Scans)) &&
						(len(loaded.Pipeline.Changes) == 0 || d.records.Load() > d.scanRecords.Load())
				}
				if denied := d.work(events, done); denied != "" {
					t.Errorf("%s was refused something", denied)
				}
			})
			for i, g := range grants {
				t.Run(fmt.Sprintf("without %s %s on %s", g.Principal, g.Role, g.On.Kind), func(t *testing.T) {
					d := deployPrivileged(t, file, slices.Delete(slices.Clone(grants), i, i+1))
					if denied := d.work(events, func() bool { return false }); denied != principalOf(loaded.Pipeline, g.Principal) {
						t.Errorf("%q was refused something, not %s", denied, g.Principal)
					}
				})
			}
		})
	}
}
