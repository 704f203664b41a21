package pipeline

import (
	"time"
	_ "time/tzdata" // the names of time zones, whatever the machine has

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

func (b *builder) scan(e *entry[scanDoc]) {
	doc := &e.value
	if !doc.ok() {
		return
	}
	s := &Scan{
		Name: e.key, Pos: e.at.pos, AppProfile: doc.AppProfile.v,
		Table: b.fixed(doc.Table, "a scan reads one table, so give it a table with a fixed id"),
		Rows:  b.rows(&doc.Rows), Limit: doc.Limit.v,
		Fetch:     Fetch{MaxRows: int(doc.Fetch.MaxRows.v), MaxBytes: doc.Fetch.MaxBytes.v},
		Emit:      emit(doc.When, doc.ForEach, doc.Emit),
		OnFailure: Policy(doc.OnFailure.v), OnLargeRow: Policy(doc.OnLargeRow.v),
	}
	s.Cells = b.cells(&doc.Cells, s.Table)
	if doc.Schedule != nil {
		s.Schedule = b.schedule(doc.Schedule)
	}
	s.To = b.sink(&doc.To, sinkUse{table: s.Table, families: s.reads(), emit: doc.Emit, forEach: doc.ForEach})
	if s.Cells.KeysOnly && s.To.Bigtable != nil {
		b.fail(doc.Cells.KeysOnly.at, "leaves the bigtable sink no cells to copy")
	}
	b.p.Scans = append(b.p.Scans, s)
}

// reads returns the families that the scan reads; nil where a filter decides.
func (s *Scan) reads() []*Family {
	var families []*Family
	for _, c := range s.Cells.Columns {
		families = append(families, c.Family)
	}
	switch {
	case s.Cells.Families != nil:
		return s.Cells.Families
	case families != nil || s.Cells.Filter != "" || s.Cells.KeysOnly || s.Table == nil:
		return families
	}
	return s.Table.Families
}

// emit returns nil where the whole row or change is one record.
func emit(when, forEach expr, fields *dict[expr]) *Emit {
	if !when.given() && !forEach.given() && fields == nil {
		return nil
	}
	m := &Emit{When: when.v, ForEach: forEach.v}
	if fields != nil {
		m.Fields = emitFields(fields)
	}
	return m
}

func emitFields(doc *dict[expr]) []EmitField {
	var fields []EmitField
	for _, f := range doc.entries {
		fields = append(fields, EmitField{Name: f.key, Pos: f.at.pos, Value: f.value.v})
	}
	return fields
}

// maxKey is Bigtable's limit for a row key, in bytes.
const maxKey = 4096

func (b *builder) rows(doc *rowsDoc) []rowrange.Range {
	encoded := doc.Encoding.v == "base64"
	var rs []rowrange.Range
	for _, p := range doc.Prefixes {
		if key, ok := b.key(p, encoded); ok {
			rs = append(rs, rowrange.Prefix(key))
		}
	}
	for i := range doc.Ranges {
		r := &doc.Ranges[i]
		from, fromOK := b.bound(r.Start, encoded)
		to, toOK := b.bound(r.End, encoded)
		if !fromOK || !toOK || !r.ok() {
			continue
		}
		keys := rowrange.Range{Start: from, End: to}
		switch {
		case !r.Start.given() && !r.End.given():
			b.fail(r.at, "says neither start nor end: leave rows out for the whole table")
		case keys.IsEmpty():
			b.fail(r.at, "no key lies in this range: its end must come after its start, and is not itself in it")
		}
		rs = append(rs, keys)
	}
	if doc.given() && doc.Prefixes == nil && doc.Ranges == nil && !b.faulty(doc.place) {
		b.fail(doc.at, "says neither prefixes nor ranges: leave rows out for the whole table")
	}
	return rowrange.Merge(rs)
}

// bound is key for a bound that may be absent.
func (b *builder) bound(n name, encoded bool) (string, bool) {
	if !n.given() {
		return "", true
	}
	return b.key(n, encoded)
}

// key returns the bytes of a row key or prefix.
func (b *builder) key(n name, encoded bool) (string, bool) {
	if !n.ok() {
		return "", false
	}
	key := n.v
	if encoded {
		if n.binary {
			b.fail(n.at, "is marked as base64 twice, here and by rows.encoding: write the text alone")
			return "", false
		}
		bytes, err := decodeBase64(n.v)
		if err != nil {
			b.fail(n.at, "%q is %v", n.v, err)
			return "", false
		}
		key = string(bytes)
	}
	switch {
	case key == "":
		b.fail(n.at, "an empty key: leave it out where there is no bound")
		return "", false
	case len(key) > maxKey:
		b.fail(n.at, "a key of %d bytes: Bigtable's have at most %d", len(key), maxKey)
		return "", false
	}
	return key, true
}

// maxFilter is Bigtable's limit for a serialized filter, in bytes. Its text is
// never shorter.
const maxFilter = 20480

func (b *builder) cells(doc *cellsDoc, t *Table) Cells {
	c := Cells{
		Families: b.families(doc.Families, t), KeysOnly: doc.KeysOnly.v, Versions: int(doc.Versions.v),
		Since: doc.Since.v, Until: doc.Until.v, Filter: doc.Filter.v, FilterPos: doc.Filter.pos,
	}
	columns := b.columns(&doc.Columns, t)
	for i := range columns {
		c.Columns = append(c.Columns, &columns[i])
	}
	for _, other := range []at{doc.Columns.at, doc.Versions.at, doc.Since.at, doc.Until.at} {
		if other.given() && c.KeysOnly {
			b.fail(other, "stands beside keysOnly, which reads no cells")
		}
		if other.given() && doc.Filter.given() {
			b.fail(other, "stands beside filter: say all of it in the filter, or none")
		}
	}
	switch {
	case doc.Families != nil && doc.Columns.given():
		b.fail(doc.Columns.at, "stands beside families: name whole families or single columns")
	case doc.Families != nil && doc.Filter.given():
		b.fail(doc.Filter.at, "stands beside families: say all of it in the filter, or none")
	case doc.Families != nil && c.KeysOnly:
		b.fail(doc.KeysOnly.at, "stands beside families: it reads no cells")
	case doc.Filter.given() && c.KeysOnly:
		b.fail(doc.KeysOnly.at, "stands beside filter: say all of it in the filter, or none")
	}
	if doc.Since.ok() && doc.Until.ok() && !doc.Since.v.Before(doc.Until.v) {
		b.fail(doc.Until.at, "no time lies between since and until: until must come after since")
	}
	if doc.Filter.ok() {
		if fault := filterFault(doc.Filter.v); fault != "" {
			b.fail(doc.Filter.at, "%s", fault)
		}
	}
	return c
}

// filterFault says why a text cannot be a RowFilter in protobuf text, judged by
// its size and brackets alone.
func filterFault(s string) string {
	if len(s) > maxFilter {
		return "a filter of more than 20,480 bytes, which is all that Bigtable takes"
	}
	var open []byte
	empty := true
	var quote byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{' || c == '<' || c == '[':
			open = append(open, c)
		case c == '}' || c == '>' || c == ']':
			if len(open) == 0 || open[len(open)-1] != opening[c] {
				return "no RowFilter in protobuf text: a bracket closes that was not opened"
			}
			open = open[:len(open)-1]
		}
		empty = empty && (c == ' ' || c == '\n')
	}
	switch {
	case empty:
		return "an empty filter: leave the field out"
	case quote != 0:
		return "no RowFilter in protobuf text: a quoted text does not end"
	case len(open) > 0:
		return "no RowFilter in protobuf text: a bracket is not closed"
	}
	return ""
}

var opening = map[byte]byte{'}': '{', '>': '<', ']': '['}

func (b *builder) schedule(doc *scheduleDoc) *Schedule {
	if doc.Cron.ok() {
		if err := checkCron(doc.Cron.v); err != nil {
			b.fail(doc.Cron.at, "%v", err)
		}
	}
	if zone := doc.TimeZone; zone.ok() {
		if _, err := time.LoadLocation(zone.v); err != nil || zone.v == "" || zone.v == "Local" {
			b.fail(zone.at, "%q is no time zone: write a name of the time zone database, such as Etc/UTC or Europe/Berlin", zone.v)
		}
	}
	return &Schedule{Pos: doc.pos, Cron: doc.Cron.v, TimeZone: doc.TimeZone.v}
}
