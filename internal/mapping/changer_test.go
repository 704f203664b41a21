package mapping

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
)

// exampleChange has an entry of each kind.
func exampleChange() *changestream.Record {
	return &changestream.Record{
		RowKey: "k1", Type: changestream.User, Cluster: "c1", CommitTime: time.Unix(1, 5).UTC(), TieBreaker: 7,
		Position: changestream.Position{LowWatermark: time.Unix(1, 0).UTC()},
		Entries: []changestream.Entry{
			{Kind: changestream.DeleteFamily, Family: "cf"},
			{Kind: changestream.SetCell, Family: "cf", Qualifier: "total", Timestamp: 1000, Value: []byte{0, 0, 0, 0, 0, 0, 0, 42}},
			{Kind: changestream.SetCell, Family: "cf", Qualifier: "\x00\xff", Timestamp: 1 << 62, Value: []byte{0xff}},
			{Kind: changestream.DeleteCells, Family: "cf", Qualifier: "day", Start: 5},
			{Kind: changestream.DeleteCells, Family: "cf", Qualifier: "day", Start: 5, End: 9},
			{Kind: changestream.AddToCell, Family: "sums", Qualifier: "n", Timestamp: 2_000_000, IsNumber: true, Number: -3},
		},
		Bytes: 100,
	}
}

// printedOutputs joins the records of a change: index, body, ordering key, attributes.
func printedOutputs(t *testing.T, options string, r *changestream.Record) string {
	t.Helper()
	m, err := compiledChanges(t, options+", table: orders")
	if err != nil {
		return err.Error()
	}
	outs, filtered, err := m.New().Change(r)
	var b strings.Builder
	for _, o := range outs {
		fmt.Fprintf(&b, "%d %s", o.Index, o.Body)
		if len(o.Attributes) > 0 {
			fmt.Fprintf(&b, " %v", o.Attributes)
		}
		b.WriteString("\n")
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	if filtered > 0 {
		fmt.Fprintf(&b, "filtered: %d\n", filtered)
	}
	return b.String()
}

// emit reshapes a change, splits it into a record for each entry, and drops what when refuses.
// An entry has the names of the whole change, its value as the column declares it.
//
// covers: CS-34
func TestEmitReshapesSplitsAndDropsChanges(t *testing.T) {
	const toLog = ", to: {log: {}}"
	for options, want := range map[string]string{
		"emit: {k: rowKey, same: change.rowKey == rowKey, t: change.type, c: change.cluster, at: change.commitTime, tie: change.tieBreaker, low: change.lowWatermark, size: change.entries.size()}" + toLog: `-1 {"k":"k1","same":true,"t":"USER","c":"c1","at":"1970-01-01T00:00:01.000000005Z","tie":7,"low":"1970-01-01T00:00:01Z","size":6}` + "\n",
		"forEach: 'change.entries.filter(e, e.kind == \"SET_CELL\")', emit: {i: item.index, f: item.family, q: item.qualifier, micros: item.timestampMicros, v: item.value}" + toLog: `0 {"i":1,"f":"cf","q":"total","micros":1000,"v":42}` + "\n" +
			`1 {"i":2,"f":"cf","q":"{base64: \"AP8=\"}","micros":4611686018427387904,"v":"/w=="}` + "\n",
		"forEach: 'change.entries.filter(e, e.kind == \"DELETE_CELLS\")', emit: {from: item.range.startMicros, to: 'item.range.?endMicros.orValue(null)'}" + toLog: `0 {"from":5,"to":null}` + "\n" + `1 {"from":5,"to":9}` + "\n",
		"emit: {sum: 'change.entries.filter(e, e.kind == \"ADD_TO_CELL\")[0].value + 1'}" + toLog:                                                                  `-1 {"sum":-2}` + "\n",
		"when: change.type == \"GARBAGE_COLLECTION\"" + toLog:                                                                                                      "",
		"filter: {families: {include: [sums]}}, emit: {all: 'change.entries.map(e, e.index)'}" + toLog:                                                             `-1 {"all":[5]}` + "\nfiltered: 5\n",
		"filter: {families: {include: [none]}, dropEmpty: true}, emit: {k: rowKey}" + toLog:                                                                        "filtered: 6\n",
		"filter: {families: {include: [none]}}, emit: {size: change.entries.size()}" + toLog:                                                                       `-1 {"size":0}` + "\nfiltered: 6\n",
		"forEach: '[1, 2]', emit: {i: item}, to: {pubsub: {topic: out, attributes: {kind: change.type, of: rowKey}}}":                                              `0 {"i":1} map[kind:USER of:k1]` + "\n" + `1 {"i":2} map[kind:USER of:k1]` + "\n",
		"emit: {k: rowKey}, to: {pubsub: {topic: out, attributes: {fixed: '\"x\"'}}}":                                                                              `-1 {"k":"k1"} map[fixed:x]` + "\n",
		"emit: {t: 'change.entries[2].timestamp', u: 'change.entries[1].timestamp'}" + toLog:                                                                       `-1 {"t":4611686018427387904,"u":"1970-01-01T00:00:00.001Z"}` + "\n",
		"emit: {t: 'change.entries[0].value'}" + toLog:                                                                                                             "error: changes.feed.emit.t: no such key: value\n",
		"forEach: change.type, emit: {k: rowKey}" + toLog:                                                                                                          "p.yaml:9:36: changes.feed.forEach: is of type string, and this place takes a list",
		"emit: {k: change.rowkey}" + toLog:                                                                                                                         "p.yaml:9:43: changes.feed.emit.k: change has the fields rowKey, type, cluster, commitTime, tieBreaker, lowWatermark and entries",
		"emit: {k: status}" + toLog:                                                                                                                                "p.yaml:9:37: changes.feed.emit.k: status is neither a variable nor a function here: to mean the text, quote it twice, since YAML takes the outer quotes away: '\"status\"'; the entries of the change are change.entries",
		"emit: {k: item}" + toLog:                                                                                                                                  "p.yaml:9:37: changes.feed.emit.k: item is known only inside a change stream that has forEach",
	} {
		if got := printedOutputs(t, options, exampleChange()); got != want {
			t.Errorf("%s: got\n%swant\n%s", options, got, want)
		}
	}
}

// A value that its column's type does not hold fails the record that reads it, and no other.
func TestAnUnreadableValueFailsOnlyTheRecordThatReadsIt(t *testing.T) {
	broken := exampleChange()
	broken.Entries[1].Value = []byte("short")
	for emit, want := range map[string]string{
		"{v: 'change.entries[1].value'}":                "error: changes.feed.emit.v: no such key: value\n",
		"{v: 'change.entries[1].?value.orValue(null)'}": `-1 {"v":null}` + "\n",
		"{v: 'change.entries[1].valueBytes'}":           `-1 {"v":"c2hvcnQ="}` + "\n",
		"{v: 'change.entries.map(e, e.family)'}":        `-1 {"v":["cf","cf","cf","cf","cf","sums"]}` + "\n",
	} {
		if got := printedOutputs(t, "emit: "+emit+", to: {log: {}}", broken); got != want {
			t.Errorf("%s: got %s", emit, got)
		}
	}
}

// What when and forEach keep of a whole change is the whole change; the ordering key by rowKey is
// that of the key's bytes, whatever they stand for.
func TestAWholeChangeIsKeptAsItIs(t *testing.T) {
	r := exampleChange()
	plain, err := compiledChanges(t, "to: {pubsub: {topic: out, orderBy: rowKey}}, table: orders")
	if err != nil {
		t.Fatal(err)
	}
	body, _, err := plain.Body(r)
	if err != nil {
		t.Fatal(err)
	}
	if !plain.IsWhole() {
		t.Error("a stream without emit is not whole")
	}
	for options, n := range map[string]int{
		"to: {pubsub: {topic: out, orderBy: rowKey}}":                          1,
		"when: 'true', to: {pubsub: {topic: out, orderBy: rowKey}}":            1,
		"forEach: '[1, 2]', to: {pubsub: {topic: out, orderBy: rowKey}}":       2,
		"to: {pubsub: {topic: out, orderBy: rowKey, attributes: {k: rowKey}}}": 1,
	} {
		m, err := compiledChanges(t, options+", table: orders")
		if err != nil {
			t.Fatal(err)
		}
		outs, _, err := m.New().Change(r)
		if err != nil || len(outs) != n {
			t.Fatalf("%s: %d records, %v", options, len(outs), err)
		}
		for _, o := range outs {
			if string(o.Body) != string(body) || o.OrderingKey != plain.OrderingKey(r) || o.OrderingKey == "" {
				t.Errorf("%s: %s", options, o.Body)
			}
		}
	}
	other, err := compiledChanges(t, "to: {pubsub: {topic: out, orderBy: change.cluster}}, table: orders")
	if err != nil {
		t.Fatal(err)
	}
	outs, _, err := other.New().Change(r)
	if err != nil || len(outs) != 1 || outs[0].OrderingKey != orderingKey("c1") || other.IsWhole() {
		t.Errorf("%v %v", outs, err)
	}
}
