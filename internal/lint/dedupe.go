package lint

import (
	"fmt"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// dedupe says what a mapping's dedupe needs and does not cover.
func (c *checker) dedupe(m *mapping.Static) {
	switch m.Source.Dedupe {
	case pipeline.DedupeWindow:
		c.window(m)
	case pipeline.DedupeMarker:
		c.marker(m)
	default:
		return
	}
	src := m.Source
	c.add(Note, RuleToken, src.Pos, placeOf(m, "name"), "%s", Renaming(src.Name))
	if m.DedupeID != nil {
		c.add(Note, RuleToken, src.DedupeID.Pos, placeOf(m, "dedupeId"), "two records of one row under one dedupeId are one contribution, in one message as in two: the second is not applied unless the first was rejected")
	}
}

// Renaming warns of another name for a mapping under dedupe.
func Renaming(mapping string) string {
	return fmt.Sprintf("the tokens of mapping %s hold its name and those of pipeline and table: after a renaming, records that were applied before count as new, so let the events and the undelivered messages run out first", mapping)
}

// profile names the application profile that writes a mapping's table.
func profile(t *pipeline.Table) string {
	if t.AppProfile == "" {
		return "the instance's default application profile"
	}
	return "application profile " + t.AppProfile
}

func (c *checker) window(m *mapping.Static) {
	src := m.Source
	c.add(Note, RuleProfile, src.Pos, placeOf(m, "dedupe"), "window needs single-cluster routing in %s", profile(src.Table))
	severity, rows := Note, ""
	switch {
	case !src.ForEach.IsZero():
		severity, rows = Warning, "forEach makes several rows of one event, some of which can be refused for longer than that; "
	case c.p.Write.Format == pipeline.FormatNDJSON:
		severity, rows = Warning, "a message has several records, some of which can be refused for longer than that; "
	case c.windows() > 1:
		severity, rows = Warning, "several mappings add under window for one event, some of which can be refused for longer than that; "
	}
	c.add(severity, RuleWindow, src.Pos, placeOf(m, "dedupe"),
		"window is exact while all deliveries fall within 15 minutes of the first application: %sa replay from %s may count again; marker has no such limit", rows, c.undelivered())
}

// windows counts the mappings under dedupe: window.
func (c *checker) windows() int {
	n := 0
	for _, m := range c.mappings {
		if m.Source.Dedupe == pipeline.DedupeWindow {
			n++
		}
	}
	return n
}

func (c *checker) marker(m *mapping.Static) {
	src := m.Source
	c.add(Note, RuleProfile, src.Pos, placeOf(m, "dedupe"),
		"marker needs single-cluster routing and single-row transactions in %s", profile(src.Table))
	c.add(Note, RuleMarker, src.Pos, placeOf(m, "dedupe"), "one row takes about a million events while their markers live")
	if !collects(src.MarkerFamily.GC) {
		c.add(Warning, RuleMarker, src.MarkerFamily.Pos, "tables."+src.Table.Name+".families."+src.MarkerFamily.Name,
			"no marker is ever collected, for each is the one version of its column: a gc of maxAge: 960h, 40 days, is enough")
	}
	for i := range c.mappings {
		c.disturbs(&c.mappings[i], src)
	}
}

// collects reports whether a rule ever collects the only version of a column.
func collects(r *pipeline.GCRule) bool {
	switch {
	case r == nil:
		return false
	case len(r.Union) > 0:
		return slices.ContainsFunc(r.Union, collects)
	case len(r.Intersection) > 0:
		return !slices.ContainsFunc(r.Intersection, func(r *pipeline.GCRule) bool { return !collects(r) })
	}
	return r.MaxAge > 0
}

// disturbs warns where a mapping writes or deletes the markers of another, or writes
// among its own.
func (c *checker) disturbs(m *mapping.Static, of *pipeline.Mapping) {
	if m.Source.Table != of.Table {
		return
	}
	for i, mu := range m.Source.Mutations {
		what := ""
		for _, cell := range mu.Cells {
			if cell.Family == of.MarkerFamily {
				what = "writes among"
			}
		}
		if deletesFrom(mu, of.MarkerFamily) {
			what = "deletes"
		}
		if what != "" {
			c.add(Warning, RuleMarker, mu.Pos, placeOf(m, fmt.Sprintf("mutations[%d]", i)),
				"%s the markers of mapping %s in family %q, whose second deliveries may then be applied: keep the markers in a family of their own that nothing else touches", what, of.Name, of.MarkerFamily.Name)
		}
	}
}

func deletesFrom(mu *pipeline.Mutation, f *pipeline.Family) bool {
	if mu.Kind == pipeline.DeleteRow {
		return true
	}
	for _, other := range mu.Families {
		if other == f {
			return true
		}
	}
	for _, col := range mu.Columns {
		if col.Family == f {
			return true
		}
	}
	return false
}

// messageID is what expressions call the id that Pub/Sub gives a message.
const messageID = "message.id"

// undelivered returns the id of the topic of messages that Pub/Sub gave up on.
func (c *checker) undelivered() string { return pipeline.TopicUndelivered.Of(c.p.Name) }

// newIDs warns if a mapping rests on the message's id, which a replay from
// NAME-undelivered does not keep and a publisher that tries again does not repeat.
func (c *checker) newIDs(m *mapping.Static) {
	const why = "a message from %s, and one that its publisher sends again, has another id"
	if m.Source.Dedupe != pipeline.DedupeNone && m.DedupeID == nil {
		c.add(Warning, RuleID, m.Source.Pos, placeOf(m, "dedupe"),
			"the default dedupeId is the message's id and the record's place in it: "+why+", and is then applied again: name a field that identifies the event, as in dedupeId: event.id", c.undelivered())
	}
	for _, p := range m.All {
		if p.Uses(messageID) {
			src := p.Source()
			c.add(Warning, RuleID, src.Pos, src.Place, "reads message.id: "+why+", so that btf replay refuses it without --new-ids", c.undelivered())
		}
	}
}
