package lint

import (
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Verdict says what a second delivery of a record does.
type Verdict string

// Values of Verdict, the most harmless first. They are the rows of the table in
// docs/pipeline.md, "Order and replays".
const (
	NoOp        Verdict = "no-op"
	NoOpButTies Verdict = "no-op-but-ties"
	ByMarker    Verdict = "marker"
	ByWindow    Verdict = "window"
	RemoveNewer Verdict = "can-remove-newer-data"
	CountAgain  Verdict = "counts-again"
)

// verdicts ranks them.
var verdicts = map[Verdict]int{NoOp: 0, NoOpButTies: 1, ByMarker: 2, ByWindow: 3, RemoveNewer: 4, CountAgain: 5}

// Meaning says a verdict in words.
func (v Verdict) Meaning() string {
	switch v {
	case NoOp:
		return "a second delivery changes nothing"
	case NoOpButTies:
		return "a second delivery changes nothing, unless another message has written the same cell at the same millisecond: then the one applied last stays"
	case ByMarker:
		return "a second delivery changes nothing while its marker lives"
	case ByWindow:
		return "a second delivery changes nothing within 15 minutes of the first application; a later one may count again"
	case RemoveNewer:
		return "a second delivery can remove newer data"
	case CountAgain:
		return "a second delivery counts again"
	}
	return ""
}

// Replay is what a second delivery does to the rows of one mapping.
type Replay struct {
	Mapping   string
	Pos       pipeline.Pos
	Place     string
	Verdict   Verdict          // the worst of Mutations
	Mutations []MutationReplay // in the file's order
}

// MutationReplay is what a second delivery of one mutation does.
type MutationReplay struct {
	Kind    pipeline.MutationKind
	Pos     pipeline.Pos
	Place   string
	Verdict Verdict
	Why     string // what decides it
}

// replay judges a mapping and reports what is dangerous in it.
func (c *checker) replay(m *mapping.Static) Replay {
	out := Replay{Mapping: m.Source.Name, Pos: m.Source.Pos, Place: placeOf(m, ""), Verdict: NoOp}
	for i, mu := range m.Source.Mutations {
		r := MutationReplay{Kind: mu.Kind, Pos: mu.Pos, Place: placeOf(m, fmt.Sprintf("mutations[%d]", i))}
		r.Verdict, r.Why = verdict(m, mu)
		c.report(m, mu, r)
		if verdicts[r.Verdict] > verdicts[out.Verdict] {
			out.Verdict = r.Verdict
		}
		out.Mutations = append(out.Mutations, r)
	}
	return out
}

func verdict(m *mapping.Static, mu *pipeline.Mutation) (Verdict, string) {
	if m.Source.Dedupe == pipeline.DedupeMarker {
		return ByMarker, "applied only where the marker is absent"
	}
	switch mu.Kind {
	case pipeline.Set:
		return setVerdict(m, mu)
	case pipeline.Add, pipeline.Merge:
		return addVerdict(m, mu)
	case pipeline.DeleteColumns:
		return deleteVerdict(m, mu)
	}
	return RemoveNewer, fmt.Sprintf("%s knows no time: it removes what was written after the first delivery too", mu.Kind)
}

func setVerdict(m *mapping.Static, mu *pipeline.Mutation) (Verdict, string) {
	if mu.Replace == pipeline.ReplaceAll {
		return RemoveNewer, "replace: all removes versions newer than the record's too; replace: older does not"
	}
	switch {
	case m.Timestamp == nil:
		return NoOpButTies, "set at the publish time, which a second delivery keeps"
	case m.Timestamp.IsConstant():
		return RemoveNewer, "the timestamp is the same for all records, so the last delivery wins: a late one puts an older value over a newer"
	case m.Timestamp.Function() == "bucket":
		return RemoveNewer, "bucket() gives several records one timestamp, of which the last delivery wins: a late one puts an older value over a newer"
	}
	if m.Timestamp.Rounds() {
		return RemoveNewer, "the timestamp is made of a part of a time, so that several records may have one, of which the last delivery wins: a late one puts an older value over a newer"
	}
	return NoOpButTies, "set at the record's own time"
}

// addVerdict: the smallest, the largest and the number of distinct values do not
// change when one value is taken in twice (features.md, SQL-23); a sum does.
func addVerdict(m *mapping.Static, mu *pipeline.Mutation) (Verdict, string) {
	sum := false
	for _, c := range mu.Cells {
		sum = sum || c.Family.Aggregate == pipeline.AggregateSum
	}
	switch {
	case !sum:
		return NoOp, "min, max and hll take one value in twice without a change"
	case m.Source.Dedupe == pipeline.DedupeWindow:
		return ByWindow, "Bigtable refuses the idempotency token for 15 minutes"
	}
	return CountAgain, fmt.Sprintf("%s to a sum, without dedupe", mu.Kind)
}

func deleteVerdict(m *mapping.Static, mu *pipeline.Mutation) (Verdict, string) {
	for _, c := range mu.Columns {
		if c.Family.Aggregate != pipeline.NoAggregate {
			return RemoveNewer, fmt.Sprintf("family %q is an aggregate: what was added to its cells after the first delivery is removed too", c.Family.Name)
		}
	}
	switch {
	case mu.AllVersions:
		return RemoveNewer, "versions: all removes versions newer than the record's too"
	case !mu.From.IsZero() && mu.To.IsZero():
		return RemoveNewer, "from without to removes versions newer than the record's too"
	case !mu.To.IsZero() && mu.To.Source != timeSource(m):
		return RemoveNewer, "where to lies after the record's time, newer versions are removed too"
	case mu.Tombstone:
		return NoOpButTies, "removes versions up to the record's time and leaves a null there"
	}
	return NoOp, "removes versions up to the record's time"
}

// timeSource is the expression of the record's time.
func timeSource(m *mapping.Static) string {
	if m.Timestamp == nil {
		return "message.publishTime"
	}
	return m.Source.Timestamp.Source
}

// report makes the findings of one mutation's verdict.
func (c *checker) report(m *mapping.Static, mu *pipeline.Mutation, r MutationReplay) {
	switch r.Verdict {
	case NoOp:
		if mu.Kind == pipeline.DeleteColumns && !mu.Tombstone && mu.To.IsZero() {
			c.add(Note, RuleLateSet, r.Pos, r.Place,
				"a set of an earlier time that is delivered after this delete shows again; tombstone: true prevents that")
		}
	case RemoveNewer:
		c.add(Warning, RuleNewer, r.Pos, r.Place, "%s: %s", RemoveNewer.Meaning(), r.Why)
	case CountAgain:
		c.countsAgain(r)
	}
}

// countsAgain is a warning, and an error where refusing a message for one bad record
// would count the good ones again with each delivery.
func (c *checker) countsAgain(r MutationReplay) {
	w := c.p.Write
	policy := c.refusing()
	if policy != "" && w.Format == pipeline.FormatNDJSON {
		c.add(Error, RuleRecount, r.Pos, r.Place,
			"%s, and under format: ndjson with %s one bad record of a message counts its neighbours again with each of %d deliveries: use dedupe: window or marker, or another policy", CountAgain.Meaning(), policy, attempts)
		return
	}
	more := ""
	switch {
	case policy != "":
		more = fmt.Sprintf("; under %s a message comes, and counts, up to %d times where another record or mapping of it fails, so let each hold one record that one mapping takes", policy, attempts)
	case w.OnFailure == pipeline.PolicyDeadLetter || w.OnUnmatched == pipeline.PolicyDeadLetter:
		more = "; a message of which over 1,000 records can never be written is kept as one dead letter, whose replay counts its good records again"
	}
	c.add(Warning, RuleRecount, r.Pos, r.Place, "%s: use dedupe: window or marker%s", CountAgain.Meaning(), more)
}

// refusing names the policy under which one bad record refuses a whole message, or "".
func (c *checker) refusing() string {
	w := c.p.Write
	if w.OnFailure == pipeline.PolicyFail {
		return "onFailure: fail"
	}
	for _, m := range w.Mappings {
		if m.When.IsZero() {
			return "" // it takes every record
		}
	}
	if w.OnUnmatched == pipeline.PolicyFail {
		return "onUnmatched: fail"
	}
	return ""
}
