package changes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// bodies returns what the sink took, in order.
func (r *rig) bodies() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, rec := range r.records {
		out = append(out, string(rec.Body))
	}
	return out
}

// emit makes a record of each entry, with an id of its own; when drops a change, and the
// position moves past it.
func TestEmitMakesTheRecordsOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `when: rowKey != "drop", forEach: change.entries, emit: {row: rowKey, kind: item.kind, of: item.qualifier}, `+toLog)
		r.tick()
		r.mutate("a", setCell("cf", "x", "1"), setCell("cf", "y", "2"))
		r.mutate("drop", setCell("cf", "x", "1"))
		start := r.partition().Opening
		r.work()
		want := []string{`{"row":"a","kind":"SET_CELL","of":"x"}`, `{"row":"a","kind":"SET_CELL","of":"y"}`}
		if got := r.bodies(); !slices.Equal(got, want) {
			t.Fatalf("%q: %s", got, r.log)
		}
		if v := r.visits[0]; v.Rows != 2 || v.Records != 2 || v.Skipped != 1 {
			t.Errorf("%d changes, %d records, %d skipped", v.Rows, v.Records, v.Skipped)
		}
		first := []string{r.records[0].ID(), r.records[1].ID()}
		if first[0] == first[1] {
			t.Error("two records of one change have one id")
		}
		if slices.Equal(r.partition().Tokens, start.Tokens) {
			t.Error("the position has not moved")
		}
	})
}

// A change of which emit can make no record stops its partition under fail, before any later
// change is sent; under the other policies the stream goes on.
func TestAChangeThatCannotBeEmittedIsTheFailurePolicys(t *testing.T) {
	for policy, want := range map[string]string{"fail": "[{a 1}]", "drop": "[{a 1} {c 3}]", "dead-letter": "[{a 1} {c 3}]"} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, `emit: {row: rowKey, value: 'change.entries[0].value'}, onFailure: `+policy+", "+toLog)
				r.tick()
				r.set("a", 1)
				r.mutate("b", setCell("cf", "total", "short"))
				r.set("c", 3)
				for range 3 {
					r.work()
					r.round()
				}
				var got []string
				for _, body := range r.bodies() {
					var row string
					var value int
					if _, err := fmt.Sscanf(strings.NewReplacer(`"`, " ", ",", " ", "}", " ").Replace(body), "{ row : %s value :%d", &row, &value); err != nil {
						t.Fatalf("%s: %v", body, err)
					}
					got = append(got, fmt.Sprintf("{%s %d}", row, value))
				}
				if fmt.Sprint(got) != want {
					t.Errorf("%v, want %s: %s", got, want, r.log)
				}
				p := r.partition()
				if (policy == "fail") != (p.Fruitless >= 3 && strings.Contains(p.LastError, "changes.feed.emit.value: no such key: value")) {
					t.Errorf("%d visits in vain, %q", p.Fruitless, p.LastError)
				}
				if policy == "dead-letter" && (len(r.letters) != 1 || string(r.letters[0].Data) != `{"rowKey":"b"}`) {
					t.Errorf("%d letters", len(r.letters))
				}
			})
		})
	}
}
