package lint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// rig is a file with room for a mapping's parts.
const rig = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    appProfile: ingest
    families:
      cf: {columns: {status: string}}
      sums: {aggregate: sum}
      least: {aggregate: min}
      sketch: {aggregate: hll}
      seen: {gc: {maxAge: 960h}}
write:
  %s
  mappings:
    - name: m
      when: event.type == "m"
      table: orders
      rowKey: event.id
      %s
      mutations:
        %s
`

const (
	at     = `timestamp: timestamp(event.at)`
	hourly = `timestamp: bucket(timestamp(event.at), duration("1h"))`
	window = "\n      dedupe: window\n      dedupeId: event.id"
	marker = "\n      dedupe: marker\n      dedupeId: event.id\n      markerFamily: seen"
	add    = `- add: {sums: {views: int(event.n)}}`
)

func load(t *testing.T, file string) (*Loaded, Findings) {
	t.Helper()
	l, findings := Load([]byte(file), pipeline.Options{File: "f"})
	if l == nil {
		t.Fatal(findings.Err())
	}
	return l, findings
}

// short prints findings of the one mapping, by place.
func short(findings Findings) string {
	var lines []string
	for _, f := range findings {
		if f.Rule == RulePolicy || f.Rule == RuleToken { // written_test.go has them
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Rule, strings.TrimPrefix(f.Place, "write.mappings[0]."), f.Message))
	}
	return strings.Join(lines, "\n")
}

// replayCase is a mapping, and what is said of it.
type replayCase struct {
	name, write, mapping, mutation string
	want                           Verdict
	findings                       string
}

func (c *replayCase) file() string { return fmt.Sprintf(rig, c.write, c.mapping, c.mutation) }

// replayCases are the rows of the table in docs/pipeline.md, "Order and replays", in
// all their forms.
func replayCases() []replayCase {
	return []replayCase{
		{"set at the publish time", "format: json", "", `- set: {cf: {status: event.s}}`, NoOpButTies, ""},
		{"set at the record's time", "format: json", at, `- set: {cf: {status: event.s}}`, NoOpButTies, ""},
		{"replace older", "format: json", at, `- {set: {cf: {status: event.s}}, replace: older}`, NoOpButTies, ""},
		{"delete up to the record's time", "format: json", at, `- deleteColumns: {cf: [status]}`, NoOp,
			"note late-set mutations[0]: a set of an earlier time that is delivered after this delete shows again; tombstone: true prevents that"},
		{"tombstone", "format: json", at, `- {deleteColumns: {cf: [status]}, tombstone: true}`, NoOpButTies, ""},
		{"delete a range that ends at the record's time", "format: json", at,
			`- {deleteColumns: {cf: [status]}, from: timestamp(event.since), to: timestamp(event.at)}`, NoOp, ""},
		{"delete a range that ends at the publish time", "format: json", "",
			`- {deleteColumns: {cf: [status]}, to: message.publishTime}`, NoOp, ""},

		{"replace all", "format: json", at, `- {set: {cf: {status: event.s}}, replace: all}`, RemoveNewer,
			"warning removes-newer mutations[0]: a second delivery can remove newer data: replace: all removes versions newer than the record's too; replace: older does not"},
		{"delete all versions", "format: json", at, `- {deleteColumns: {cf: [status]}, versions: all}`, RemoveNewer,
			"warning removes-newer mutations[0]: a second delivery can remove newer data: versions: all removes versions newer than the record's too"},
		{"delete families", "format: json", at, `- deleteFamilies: [cf]`, RemoveNewer,
			"warning removes-newer mutations[0]: a second delivery can remove newer data: deleteFamilies knows no time: it removes what was written after the first delivery too"},
		{"delete the row", "format: json", at, `- deleteRow: true`, RemoveNewer,
			"warning removes-newer mutations[0]: a second delivery can remove newer data: deleteRow knows no time: it removes what was written after the first delivery too"},
		{"delete a range without an end", "format: json", at, `- {deleteColumns: {cf: [status]}, from: timestamp(event.since)}`, RemoveNewer,
			"warning removes-newer mutations[0]: a second delivery can remove newer data: from without to removes versions newer than the record's too"},
		{"delete a range that ends elsewhere", "format: json", at, `- {deleteColumns: {cf: [status]}, to: timestamp(event.until)}`, RemoveNewer,
			"warning removes-newer mutations[0]: a second delivery can remove newer data: where to lies after the record's time, newer versions are removed too"},
		{"delete columns of an aggregate", "format: json", at, `- deleteColumns: {sums: [views]}`, RemoveNewer,
			`warning removes-newer mutations[0]: a second delivery can remove newer data: family "sums" is an aggregate: what was added to its cells after the first delivery is removed too`},
		{"set at a bucket's time", "format: json", hourly, `- set: {cf: {status: event.s}}`, RemoveNewer,
			"warning removes-newer mutations[0]: a second delivery can remove newer data: bucket() gives several records one timestamp, of which the last delivery wins: a late one puts an older value over a newer"},
		{"set at one time for all", "format: json", `timestamp: timestamp("2026-08-01T00:00:00Z")`, `- set: {cf: {status: event.s}}`, RemoveNewer,
			"warning removes-newer mutations[0]: a second delivery can remove newer data: the timestamp is the same for all records, so the last delivery wins: a late one puts an older value over a newer"},

		{"add without dedupe", "format: json\n  onFailure: drop\n  onUnmatched: skip", hourly, add, CountAgain,
			"warning counts-again mutations[0]: a second delivery counts again: use dedupe: window or marker"},
		{"merge without dedupe", "format: json\n  onFailure: drop\n  onUnmatched: skip", hourly, `- merge: {sums: {views: base64.decode(event.acc)}}`, CountAgain,
			"warning counts-again mutations[0]: a second delivery counts again: use dedupe: window or marker"},
		{"add where a bad record refuses its message", "format: json", hourly, add, CountAgain,
			"warning counts-again mutations[0]: a second delivery counts again: use dedupe: window or marker; under onFailure: fail a message comes, and counts, up to 100 times where another record or mapping of it fails, so let each hold one record that one mapping takes"},
		{"add where a bad record recounts its neighbours", "format: ndjson", hourly, add, CountAgain,
			"error counts-again mutations[0]: a second delivery counts again, and under format: ndjson with onFailure: fail one bad record of a message counts its neighbours again with each of 100 deliveries: use dedupe: window or marker, or another policy"},
		{"add where an unmatched record recounts its neighbours", "format: ndjson\n  onFailure: drop", hourly, add, CountAgain,
			"error counts-again mutations[0]: a second delivery counts again, and under format: ndjson with onUnmatched: fail one bad record of a message counts its neighbours again with each of 100 deliveries: use dedupe: window or marker, or another policy"},
		{"add of many records, none of which refuses the message", "format: ndjson\n  onFailure: dead-letter\n  onUnmatched: skip", hourly, add, CountAgain,
			"warning counts-again mutations[0]: a second delivery counts again: use dedupe: window or marker; a message of which over 1,000 records can never be written is kept as one dead letter, whose replay counts its good records again"},
		{"the smallest of a value twice is the same", "format: ndjson", hourly, `- add: {least: {low: int(event.n)}}`, NoOp, ""},
		{"the distinct values of one twice are the same", "format: ndjson", hourly, `- merge: {sketch: {users: base64.decode(event.sketch)}}`, NoOp, ""},

		{"window", "format: json", hourly + window, add, ByWindow,
			"note profile dedupe: window needs single-cluster routing in application profile ingest\n" +
				"note window dedupe: window is exact while all deliveries fall within 15 minutes of the first application: a replay from orders-undelivered may count again; marker has no such limit"},
		{"window and several rows of an event", "format: json", hourly + "\n      forEach: event.items" + window, add, ByWindow,
			"note profile dedupe: window needs single-cluster routing in application profile ingest\n" +
				"warning window dedupe: window is exact while all deliveries fall within 15 minutes of the first application: forEach makes several rows of one event, some of which can be refused for longer than that; a replay from orders-undelivered may count again; marker has no such limit"},
		{"window and several records of a message", "format: ndjson", hourly + window, add, ByWindow,
			"note profile dedupe: window needs single-cluster routing in application profile ingest\n" +
				"warning window dedupe: window is exact while all deliveries fall within 15 minutes of the first application: a message has several records, some of which can be refused for longer than that; a replay from orders-undelivered may count again; marker has no such limit"},
		{"window guards what is added alone", "format: json", hourly + window, add + "\n        - deleteFamilies: [cf]", RemoveNewer,
			"note profile dedupe: window needs single-cluster routing in application profile ingest\n" +
				"note window dedupe: window is exact while all deliveries fall within 15 minutes of the first application: a replay from orders-undelivered may count again; marker has no such limit\n" +
				"warning removes-newer mutations[1]: a second delivery can remove newer data: deleteFamilies knows no time: it removes what was written after the first delivery too"},

		{"marker", "format: ndjson", hourly + marker, add + "\n        - {set: {cf: {status: event.s}}, replace: all}", ByMarker,
			"note marker dedupe: one row takes about a million events while their markers live\n" +
				"note profile dedupe: marker needs single-cluster routing and single-row transactions in application profile ingest"},
		{"the default dedupeId", "format: json", hourly + "\n      dedupe: marker\n      markerFamily: seen", add, ByMarker,
			"note marker dedupe: one row takes about a million events while their markers live\n" +
				"warning message-id dedupe: the default dedupeId is the message's id and the record's place in it: a message from orders-undelivered, and one that its publisher sends again, has another id, and is then applied again: name a field that identifies the event, as in dedupeId: event.id\n" +
				"note profile dedupe: marker needs single-cluster routing and single-row transactions in application profile ingest"},
		{"message.id in a cell", "format: json", "", `- set: {cf: {status: '"id " + message.id'}}`, NoOpButTies,
			"warning message-id mutations[0].set.cf.status: reads message.id: a message from orders-undelivered, and one that its publisher sends again, has another id, so that btf replay refuses it without --new-ids"},
	}
}

// covers: SNK-11, SNK-13, SNK-42
func TestWhatASecondDeliveryDoesIsSaidOfEachMapping(t *testing.T) {
	for _, c := range replayCases() {
		t.Run(c.name, func(t *testing.T) {
			l, findings := load(t, c.file())
			if got := l.Report.Replays[0]; got.Verdict != c.want || got.Mapping != "m" {
				t.Errorf("verdict %s (%+v), want %s", got.Verdict, got.Mutations, c.want)
			}
			if got := short(findings); got != c.findings {
				t.Errorf("findings\n%s\nwant\n%s", got, c.findings)
			}
		})
	}
}

func TestAFindingStandsWhereItsCauseIs(t *testing.T) {
	file := fmt.Sprintf(rig, "format: json", "rowKeyUnused", "- deleteRow: true")
	file = strings.Replace(file, "      rowKeyUnused\n", "", 1)
	_, findings := load(t, file)
	f := findings[len(findings)-1]
	line, column := f.Pos.Line, f.Pos.Column
	if got := strings.Split(file, "\n")[line-1][column-1:]; got != "deleteRow: true" {
		t.Errorf("line %d column %d is %q", line, column, got)
	}
	if want := fmt.Sprintf("f:%d:%d: warning: write.mappings[0].mutations[0]: ", line, column); !strings.HasPrefix(f.String(), want) {
		t.Errorf("prints %q, want it to begin with %q", f, want)
	}
}

func TestMarkersAreKeptFromOtherMutations(t *testing.T) {
	file := fmt.Sprintf(rig, "format: json", at+marker, "- set: {cf: {status: event.s}, seen: {x: event.s}}") + `    - name: cleaner
      table: orders
      rowKey: event.id
      mutations:
        - deleteRow: true
        - deleteFamilies: [seen]
        - deleteColumns: {seen: [x]}
        - deleteColumns: {cf: [status]}
`
	_, findings := load(t, file)
	var got []string
	for _, f := range findings {
		if f.Rule == RuleMarker && f.Severity == Warning {
			got = append(got, f.Place+": "+strings.Join(strings.Fields(f.Message)[:6], " "))
		}
	}
	want := []string{
		"write.mappings[0].mutations[0]: writes among the markers of mapping",
		"write.mappings[1].mutations[0]: deletes the markers of mapping m",
		"write.mappings[1].mutations[1]: deletes the markers of mapping m",
		"write.mappings[1].mutations[2]: deletes the markers of mapping m",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMarkersThatNothingCollectsAreTold(t *testing.T) {
	file := strings.Replace(fmt.Sprintf(rig, "format: json", at+marker, add), "seen: {gc: {maxAge: 960h}}", "seen: {}", 1)
	_, findings := load(t, file)
	if got := short(findings[:1]); got != "warning marker tables.orders.families.seen: no marker is ever collected, for each is the one version of its column: a gc of maxAge: 960h, 40 days, is enough" {
		t.Errorf("got %q", got)
	}
}

func TestOfTheMutationFormatNothingCanBeSaid(t *testing.T) {
	top, _, _ := strings.Cut(rig, "write:")
	l, findings := load(t, top+"write: {format: mutation, onFailure: fail}\n")
	if len(l.Report.Replays) != 0 || len(findings) != 1 || findings[0].Rule != RuleMutation || findings.Err() != nil {
		t.Errorf("replays %v, findings %v", l.Report.Replays, findings)
	}
}

func TestFaultsOfExpressionsAreListedByPlace(t *testing.T) {
	file := fmt.Sprintf(rig, "format: json", "timestamp: evnt.at", "- set: {cf: {status: event.s + 1 + 'x'}}")
	l, findings := Load([]byte(file), pipeline.Options{File: "f"})
	if l != nil || len(findings) != 2 || findings.Count(Error) != 2 {
		t.Fatalf("loaded %v, findings %v", l, findings)
	}
	for i, want := range []string{"f:20:18: error: write.mappings[0].timestamp: evnt is neither", "f:22:42: error: write.mappings[0].mutations[0].set.cf.status: + does not take (int, string)"} {
		if got := findings[i].String(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want it to begin with %q", got, want)
		}
	}
	if err := findings.Err(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("as one error: %v", err)
	}
}

func TestFaultsOfScansAreListedWithThoseOfMappings(t *testing.T) {
	file := fmt.Sprintf(rig, "format: json", "timestamp: evnt.at", "- deleteRow: true") + `scans:
  archive:
    table: orders
    cells: {filter: 'no_such_filter: 1'}
    emit: {id: rowKey, status: row.cg.status, more: nothing}
    to: {log: {}}
`
	l, findings := Load([]byte(file), pipeline.Options{File: "f"})
	if l != nil {
		t.Fatal("it loads")
	}
	var places []string
	for _, f := range findings {
		places = append(places, fmt.Sprintf("%d %s", f.Pos.Line, f.Place))
	}
	want := []string{"20 write.mappings[0].timestamp", "26 scans.archive.cells.filter", "27 scans.archive.emit.status", "27 scans.archive.emit.more"}
	if strings.Join(places, ", ") != strings.Join(want, ", ") {
		t.Errorf("faults at %q, want %q\n%v", places, want, findings.Err())
	}
	if strings.Count(findings[1].Message, "f:26") > 0 {
		t.Errorf("says its place twice: %s", findings[1])
	}
}
