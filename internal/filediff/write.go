package filediff

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// What a difference does to what is on its way.
const (
	harmRows   = "messages that come again, or are replayed, write other rows or cells than before, and what was written stays"
	harmTokens = "contributions that were counted under the old tokens count again if their message comes again: pause the events, wait until none is outstanding, and then deploy"
	harmBytes  = "cells that are already there keep the bytes of the old encoding"
)

// tables compares the declared tables, by their names in the file.
func (d *differ) tables() {
	for _, p := range pairs(d.old.Tables, d.new.Tables, func(t *pipeline.Table) string { return t.Name }) {
		old, new := p[0], p[1]
		switch {
		case old == nil:
			d.add(Tables, "tables."+new.Name, "", tableText(new), "")
		case new == nil:
			d.add(Tables, "tables."+old.Name, tableText(old), "", "")
		default:
			d.table("tables."+old.Name, old, new)
		}
	}
}

func (d *differ) table(place string, old, new *pipeline.Table) {
	d.field(Tables, place+".id", tableText(old), tableText(new), harmRows)
	d.field(Tables, place+".key", old.Key.String(), new.Key.String(), "rows that are already there keep the keys of the old encoding")
	d.field(Tables, place+".appProfile", old.AppProfile, new.AppProfile, "")
	d.field(Tables, place+".create", string(old.Create), string(new.Create), "")
	d.field(Tables, place+".nullString", old.NullString, new.NullString, harmBytes)
	for _, p := range pairs(old.Families, new.Families, func(f *pipeline.Family) string { return f.Name }) {
		switch at := place + ".families."; {
		case p[0] == nil:
			d.add(Tables, at+p[1].Name, "", familyText(p[1]), "")
		case p[1] == nil:
			d.add(Tables, at+p[0].Name, familyText(p[0]), "", "dead letters and messages that name the family are refused")
		default:
			d.field(Tables, at+p[0].Name, familyText(p[0]), familyText(p[1]), harmBytes)
			d.field(Tables, at+p[0].Name+".gc", ruleText(p[0].GC), ruleText(p[1].GC), "")
		}
	}
}

// ruleText is a garbage collection rule.
func ruleText(r *pipeline.GCRule) string {
	switch {
	case r == nil:
		return absent
	case r.MaxVersions > 0:
		return "maxVersions: " + strconv.Itoa(r.MaxVersions)
	case r.MaxAge > 0:
		return "maxAge: " + r.MaxAge.String()
	}
	kind, rules := "union", r.Union
	if rules == nil {
		kind, rules = "intersection", r.Intersection
	}
	out := make([]string, len(rules))
	for i, part := range rules {
		out[i] = ruleText(part)
	}
	return kind + "(" + strings.Join(out, ", ") + ")"
}

// writes compares the write sections.
func (d *differ) writes() {
	old, new := d.old.Write, d.new.Write
	if old == nil || new == nil {
		switch {
		case old != nil:
			d.add(Rows, "write", "present", "", "messages that wait in "+pipeline.TopicEvents.Of(d.old.Name)+" are deleted with its subscription")
		case new != nil:
			d.add(Rows, "write", "", "present", "")
		}
		return
	}
	d.field(Rows, "write.format", string(old.Format), string(new.Format), "messages that wait are read in the new format")
	d.field(Delivery, "write.skip", source(old.Skip), source(new.Skip), "")
	d.field(Delivery, "write.onUnmatched", string(old.OnUnmatched), string(new.OnUnmatched), "")
	d.field(Delivery, "write.onFailure", string(old.OnFailure), string(new.OnFailure), "")
	d.field(Delivery, "write.limits", fmt.Sprintf("%+v", old.Limits), fmt.Sprintf("%+v", new.Limits), "")
	d.field(Delivery, "write.repair", fmt.Sprintf("%+v", old.Repair), fmt.Sprintf("%+v", new.Repair), "")
	all := pairs(old.Mappings, new.Mappings, func(m *pipeline.Mapping) string { return m.Name })
	for i, p := range all {
		switch {
		case p[0] != nil && p[1] != nil:
			d.mapping(p[0], p[1])
		case p[0] != nil:
			d.removed(p[0], all[i:])
		case !d.isRenamed(p[1]):
			d.add(Rows, "write.mappings."+p[1].Name, "", mappingText(p[1]), "")
		}
	}
	d.order(old.Mappings, new.Mappings)
}

// removed adds a mapping that the new version lacks, or has under another name: under that, its
// tokens are others.
func (d *differ) removed(m *pipeline.Mapping, all [][2]*pipeline.Mapping) {
	for _, p := range all {
		if p[0] == nil && mappingText(p[1]) == mappingText(m) {
			harm := ""
			if hasTokens(m) {
				harm = harmTokens
			}
			d.add(Tokens, "write.mappings."+m.Name+".name", m.Name, p[1].Name, harm)
			return
		}
	}
	d.add(Rows, "write.mappings."+m.Name, mappingText(m), "", "messages that wait are not written by it")
}

// isRenamed reports whether a mapping of the new version is one of the old version under another
// name.
func (d *differ) isRenamed(m *pipeline.Mapping) bool {
	for _, x := range d.out {
		if x.Part == Tokens && strings.HasSuffix(x.Place, ".name") && x.New == m.Name {
			return true
		}
	}
	return false
}

// mappingText is all of a mapping but its name.
func mappingText(m *pipeline.Mapping) string {
	out := fmt.Sprintf("table %s, rowKey %s", m.Table.Name, m.RowKey.Source)
	for _, part := range []struct {
		name string
		expr pipeline.Expr
	}{{"when", m.When}, {"forEach", m.ForEach}, {"timestamp", m.Timestamp}, {"dedupeId", m.DedupeID}} {
		if !part.expr.IsZero() {
			out += ", " + part.name + " " + part.expr.Source
		}
	}
	return out + dedupeText(m) + ": " + mutationsText(m.Mutations)
}

func dedupeText(m *pipeline.Mapping) string {
	out := ""
	if hasTokens(m) {
		out += ", dedupe " + string(m.Dedupe)
	}
	if m.MarkerFamily != nil {
		out += " in " + m.MarkerFamily.Name
	}
	return out
}

func hasTokens(m *pipeline.Mapping) bool {
	return m.Dedupe == pipeline.DedupeWindow || m.Dedupe == pipeline.DedupeMarker
}

// mapping compares two versions of a mapping.
func (d *differ) mapping(old, new *pipeline.Mapping) {
	place := "write.mappings." + old.Name
	d.field(Rows, place+".when", source(old.When), source(new.When), "messages that wait are taken, or not taken, by the new condition")
	d.field(Rows, place+".forEach", source(old.ForEach), source(new.ForEach), harmRows)
	d.field(Rows, place+".table", old.Table.Name, new.Table.Name, harmRows)
	d.field(Rows, place+".rowKey", source(old.RowKey), source(new.RowKey), harmRows)
	d.field(Rows, place+".timestamp", source(old.Timestamp), source(new.Timestamp), "a message that comes again writes its cells with another time beside, or over, those that it has written")
	d.field(Rows, place+".mutations", mutationsText(old.Mutations), mutationsText(new.Mutations), "")
	d.field(Rows, place+".allowFuture", fmt.Sprint(old.AllowFuture), fmt.Sprint(new.AllowFuture), "")
	d.tokens(place, old, new)
}

// tokens compares what decides about the tokens of a mapping's contributions.
func (d *differ) tokens(place string, old, new *pipeline.Mapping) {
	if !hasTokens(old) && !hasTokens(new) {
		return
	}
	if d.field(Tokens, place+".dedupe", string(old.Dedupe)+dedupeFamily(old), string(new.Dedupe)+dedupeFamily(new), harmTokens) {
		return
	}
	of := func(p *pipeline.Pipeline, m *pipeline.Mapping) string {
		return fmt.Sprintf("of pipeline %s, %s, rowKey %s, dedupeId %s", p.Name, tableText(m.Table), source(m.RowKey), source(m.DedupeID))
	}
	d.field(Tokens, place+".tokens", of(d.old, old), of(d.new, new), harmTokens)
}

func dedupeFamily(m *pipeline.Mapping) string {
	if m.MarkerFamily == nil {
		return ""
	}
	return " in " + m.MarkerFamily.Name
}

// order compares the order of the mappings that both versions have: mutations of one row are
// applied in it.
func (d *differ) order(old, new []*pipeline.Mapping) {
	names := func(all, other []*pipeline.Mapping) string {
		var out []string
		for _, m := range all {
			for _, o := range other {
				if o.Name == m.Name {
					out = append(out, m.Name)
				}
			}
		}
		return strings.Join(out, ", ")
	}
	d.field(Rows, "write.mappings", names(old, new), names(new, old), "of two mappings that write one cell for one record, the last wins")
}
