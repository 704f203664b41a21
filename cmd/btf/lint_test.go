package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
)

// run runs a command of btf to its end.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs output
	cmd := root(&out, &errs)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// in makes files in a new working directory.
func in(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const counters = `version: 1
name: counters
bigtable: {project: my-project, instance: my-instance}
tables:
  counts: {families: {sums: {aggregate: sum}, cf: {}}}
write:
  format: FORMAT
  ordered: true
  mappings:
    - name: views
      table: counts
      rowKey: key(event.at, event.page)
      timestamp: bucket(timestamp(event.at), duration("1h"))
      mutations:
        - add: {sums: {views: int(event.delta)}}
    - name: gone
      table: counts
      rowKey: event.page
      mutations:
        - deleteRow: true
`

// covers: SNK-13, SNK-42
func TestLintTellsOfEachMappingWhatAReplayDoes(t *testing.T) {
	in(t, map[string]string{"counters.yaml": strings.Replace(counters, "FORMAT", "json", 1)})
	got, stderr, err := run(t, "lint", "counters.yaml")
	if err != nil || stderr != "" {
		t.Errorf("warnings are no failure: %v %q", err, stderr)
	}
	want := `counters.yaml:7:3: warning: write.onFailure: is left at fail: a message with a record that can never be written is delivered 100 times, all of it, and then held in counters-undelivered: write dead-letter to hold that record alone, another policy, or fail where this is meant [policy]
counters.yaml:12:19: warning: write.mappings[0].rowKey: begins with event.at, by its name a time: all new rows then go to one tablet: begin it with a field that differs between neighbours, or with salt(…) [hot-key]
counters.yaml:15:11: warning: write.mappings[0].mutations[0]: a second delivery counts again: use dedupe: window or marker; under onFailure: fail a message comes, and counts, up to 100 times where another record or mapping of it fails, so let each hold one record that one mapping takes [counts-again]
counters.yaml:20:11: warning: write.mappings[1].mutations[0]: a second delivery can remove newer data: deleteRow knows no time: it removes what was written after the first delivery too [removes-newer]
counters.yaml:10:7: mapping views: counts-again: a second delivery counts again
counters.yaml:16:7: mapping gone: can-remove-newer-data: a second delivery can remove newer data
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestLintFailsWhereAFileHasErrorsAndPrintsAllOfThem(t *testing.T) {
	in(t, map[string]string{
		"recounts.yaml": strings.Replace(counters, "FORMAT", "ndjson", 1),
		"broken.yaml":   strings.NewReplacer("FORMAT", "jsn", "cf: {}", "cf: {gc: {maxVersions: 0}}", "rowKey: event.page", "rowkey: event.page").Replace(counters),
		"types.yaml":    strings.NewReplacer("FORMAT", "json", "event.page)", `"a" + 1)`, "rowKey: event.page", "rowKey: page").Replace(counters),
		"good.yaml":     strings.Replace(counters, "FORMAT", "json", 1),
	})
	stdout, _, err := run(t, "lint", "broken.yaml", "good.yaml", "missing.yaml", "recounts.yaml", "types.yaml")
	if err == nil || err.Error() != "8 errors in 4 of 5 files" {
		t.Errorf("error %v", err)
	}
	var places []string
	for line := range strings.Lines(stdout) {
		if place, _, isError := strings.Cut(line, ": error: "); isError {
			places = append(places, place)
		}
	}
	want := []string{
		"broken.yaml:5:70", "broken.yaml:7:11", "broken.yaml:16:7", "broken.yaml:18:7",
		"missing.yaml:1:1",
		"recounts.yaml:15:11",
		"types.yaml:12:33", "types.yaml:18:15",
	}
	if !slices.Equal(places, want) {
		t.Errorf("errors at %q, want %q\n%s", places, want, stdout)
	}
}

func TestLintPrintsGrantsAndResourcesWhenAsked(t *testing.T) {
	in(t, map[string]string{"f.yaml": strings.Replace(counters, "FORMAT", "json", 1)})
	stdout, _, err := run(t, "lint", "--grants", "--resources", "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"f.yaml: grant write: roles/bigtable.user on table projects/my-project/instances/my-instance/tables/counts: writes rows\n",
		"f.yaml: service counters-write: function write, handler 270s, service 290s\n",
		"f.yaml: topic counters-events\n",
		"f.yaml: subscription counters-events: of counters-events, pushes to counters-write, deadline 300s, kept 7 days, again after 10s to 300s, 100 attempts, then to counters-undelivered, ordered\n",
		"f.yaml: subscription counters-undelivered: of counters-undelivered, to pull, deadline 600s, kept 31 days\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no line %q in\n%s", want, stdout)
		}
	}
	scan := scansOnly + "  other: {table: orders, schedule: {cron: '0 3 * * *'}, to: {pubsub: {topic: projects/other/topics/out}}}\n"
	in(t, map[string]string{"f.yaml": strings.Replace(counters, "FORMAT", "json", 1), "s.yaml": scan})
	if stdout, _, err = run(t, "lint", "--grants", "--resources", "s.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"s.yaml: grant scan-worker: roles/pubsub.publisher on topic projects/other/topics/out: scan other publishes there\n",
		"s.yaml: topic projects/other/topics/out: not the pipeline's own, records are sent there\n",
		"s.yaml: schedule orders-scan-other: \"0 3 * * *\" in Etc/UTC, publishes {\"scan\":\"other\",\"scheduled\":true} to topic orders-scan-requests\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no line %q in\n%s", want, stdout)
		}
	}
	if plain, _, _ := run(t, "lint", "f.yaml"); strings.Contains(plain, "grant") || strings.Contains(plain, "topic") {
		t.Errorf("unasked:\n%s", plain)
	}
}

func TestLintPrintsOneJSONArray(t *testing.T) {
	in(t, map[string]string{"f.yaml": strings.Replace(counters, "FORMAT", "ndjson", 1), "broken.yaml": "version: 2\n"})
	stdout, _, err := run(t, "lint", "--json", "f.yaml", "broken.yaml")
	if err == nil {
		t.Error("errors are a failure under --json too")
	}
	var got []struct {
		File, Pipeline string
		Findings       []struct {
			Severity, Rule, Place, Message string
			Line, Column                   int
		}
		Replays []struct {
			Mapping, Verdict, Meaning string
			Line, Column              int
			Mutations                 []struct{ Kind, Verdict, Why string }
		}
		Grants    []lint.Grant
		Resources struct {
			Topics        []string
			Subscriptions []struct{ ID, AckDeadline string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	f := got[0]
	if f.File != "f.yaml" || f.Pipeline != "counters" || len(f.Replays) != 2 || f.Replays[0].Verdict != "counts-again" || f.Replays[0].Line != 10 || f.Replays[1].Mutations[0].Kind != "deleteRow" || len(f.Grants) == 0 {
		t.Errorf("got %+v", f)
	}
	if e := f.Findings[2]; e.Severity != "error" || e.Rule != "counts-again" || e.Line != 15 || e.Column != 11 || e.Place != "write.mappings[0].mutations[0]" {
		t.Errorf("finding %+v", e)
	}
	if !slices.Equal(f.Resources.Topics, []string{"counters-events", "counters-undelivered"}) || f.Resources.Subscriptions[0].AckDeadline != "300s" {
		t.Errorf("resources %+v", f.Resources)
	}
	if got[1].Pipeline != "" || len(got[1].Findings) == 0 || got[1].Findings[0].Severity != "error" {
		t.Errorf("the broken file: %+v", got[1])
	}
}

func TestLintTakesTheProjectOfTheEnvironment(t *testing.T) {
	in(t, map[string]string{"f.yaml": strings.NewReplacer("FORMAT", "json", "bigtable: {project: my-project, instance: my-instance}\n", "").Replace(counters)})
	if _, _, err := run(t, "lint", "f.yaml"); err == nil {
		t.Error("a file without a project passes")
	}
	t.Setenv("BIGTABLE_PROJECT", "env-project")
	t.Setenv("BIGTABLE_INSTANCE", "env-instance")
	if stdout, _, err := run(t, "lint", "--grants", "f.yaml"); err != nil || !strings.Contains(stdout, "projects/env-project/instances/env-instance/tables/counts") {
		t.Errorf("%v\n%s", err, stdout)
	}
}

func TestLintObeysNothingThatAFileHolds(t *testing.T) {
	in(t, map[string]string{"f.yaml": strings.NewReplacer("FORMAT", "json", "gone\n", "\"go\\e[31mne\\nf.yaml: fake\\u202e\"\n").Replace(counters)})
	stdout, _, _ := run(t, "lint", "f.yaml")
	if strings.ContainsAny(stdout, "\x1b\u202e") || strings.Contains(stdout, "\nf.yaml: fake") {
		t.Errorf("a terminal would obey %q", stdout)
	}
	for text, want := range map[string]string{
		"plain – ok\"": "plain – ok\"", "\x1b[2J": `\x1b[2J`, "a\nb\r\t": `a\x0ab\x0d\x09`, "\xff\u0085\u202e\ufeff": `\xff\u0085\u202e\ufeff`, "\U000e0001": `\U000e0001`,
	} {
		if got := terminal.Escape(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestAnErrorIsPrintedSoThatATerminalObeysNothingInIt(t *testing.T) {
	var out output
	terminal.PrintError(&out, errors.Join(errors.New("a\x1b[31m"), errors.New("b")))
	if want := "btf: a\\x1b[31m\nbtf: b\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestExamplesHaveNoErrors(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/pipeline.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v %v", files, err)
	}
	if stdout, _, err := run(t, append([]string{"lint"}, files...)...); err != nil {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// TestBtfAsAProcess is btf itself where another test starts it so.
func TestBtfAsAProcess(t *testing.T) {
	args := os.Getenv("BTF_TEST_ARGS")
	if args == "" {
		t.Skip("runs only as the child of another test")
	}
	os.Args = append([]string{"btf"}, strings.Split(args, "\n")...)
	main()
	os.Exit(0)
}

// btfProcess is a child process of btf.
func btfProcess(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBtfAsAProcess$")
	cmd.Env = append(os.Environ(), "BTF_TEST_ARGS="+strings.Join(args, "\n"))
	return cmd
}

func TestAClosedPipeEndsBtfQuietly(t *testing.T) {
	in(t, map[string]string{"f.yaml": strings.Replace(counters, "FORMAT", "json", 1)})
	for _, args := range [][]string{{"lint", "f.yaml"}, {"lint", "--json", "f.yaml"}, {"dev", "-f", "f.yaml"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		var stderr output
		cmd := btfProcess(t, args...)
		cmd.Stdout, cmd.Stderr = w, &stderr
		err = cmd.Run()
		w.Close()
		if err == nil {
			t.Errorf("btf %s did not notice that nobody reads", args)
		}
		if text := stderr.String(); strings.Contains(text, "btf:") || strings.Contains(text, "pipe") || strings.Contains(text, "goroutine") {
			t.Errorf("btf %s says %q", args, text)
		}
	}
}

func TestLintWarnsOfWhatThisVersionDoesNotDo(t *testing.T) {
	in(t, map[string]string{"f.yaml": `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {}}}
scans:
  kept: {table: orders, to: {log: {}}}
  archive: {table: orders, to: {gcs: {bucket: my-bucket, format: ndjson}}}
changes:
  feed: {table: orders, appProfile: single, snapshot: true, to: {pubsub: {topic: orders-cdc}}}
`})
	got, stderr, err := run(t, "lint", "f.yaml")
	want := `f.yaml:9:32: warning: scans.archive.to: this version sends the records of scans to pubsub and log, and not to gcs [not-served]
f.yaml:11:3: warning: changes.feed: this version delivers changes alone, without snapshot [not-served]
`
	if got != want || stderr != "" || err != nil {
		t.Errorf("got\n%swant\n%s%s, %v", got, want, stderr, err)
	}
}
