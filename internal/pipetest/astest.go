package pipetest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// DefaultMessage is the message of a test that says nothing of it but data.
func DefaultMessage(data []byte) *push.Message {
	return &push.Message{ID: "test", PublishTime: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Subscription: "test", Data: data}
}

// testTime is how a test writes a time: whole milliseconds.
const testTime = "2006-01-02T15:04:05.999Z"

// AsTest writes a message and what comes of it as an entry of the file's tests, which
// passes. Publish times lose what is finer than a millisecond, which no test can say,
// before anything is made of them. The error says what no test can write out.
func (s *Suite) AsTest(m *push.Message) (string, error) {
	whole := *m
	whole.PublishTime = m.PublishTime.UTC().Truncate(time.Millisecond)
	o := s.outcome(&whole, delivered())
	y := &writing{}
	y.line(2, "- name: %s", strconv.Quote("message "+m.ID))
	s.writeMessage(y, &whole, o)
	y.line(4, "expect:")
	switch {
	case o.skipped > 0 && len(o.rows)+len(o.rejected) == 0:
		y.line(6, "skipped: true")
	case len(o.rows)+len(o.rejected) == 0:
		y.line(6, "rows: []")
	}
	if len(o.rows) > 0 {
		y.line(6, "rows:")
	}
	for _, r := range o.rows {
		if err := writeRow(y, r); err != nil {
			return "", fmt.Errorf("row %s: %w", rowName(r), err)
		}
	}
	if len(o.rejected) > 0 {
		y.line(6, "rejected:")
	}
	for _, r := range o.rejected {
		y.line(8, "- %s", rejectedLiteral(r))
	}
	return y.String(), nil
}

// writing is YAML as it is written, line by line.
type writing struct{ strings.Builder }

func (y *writing) line(indent int, format string, args ...any) {
	y.WriteString(strings.Repeat(" ", indent))
	fmt.Fprintf(y, format+"\n", args...)
}

func rejectedLiteral(r *mapping.Rejection) string {
	var fields []string
	if r.Mapping != "" {
		fields = append(fields, "mapping: "+strconv.Quote(r.Mapping))
	}
	if r.Place != "" {
		fields = append(fields, "at: "+strconv.Quote(r.Place))
	}
	return "{" + strings.Join(append(fields, "error: "+strconv.Quote(r.Err.Error())), ", ") + "}"
}

func (s *Suite) writeMessage(y *writing, m *push.Message, o *outcome) {
	given := DefaultMessage(nil)
	y.line(4, "message:")
	if m.ID != given.ID {
		y.line(6, "id: %s", strconv.Quote(m.ID))
	}
	if !m.PublishTime.Equal(given.PublishTime) {
		y.line(6, "publishTime: %s", strconv.Quote(m.PublishTime.Format(testTime)))
	}
	if m.OrderingKey != "" {
		y.line(6, "orderingKey: %s", strconv.Quote(m.OrderingKey))
	}
	if m.Subscription != given.Subscription {
		y.line(6, "subscription: %s", strconv.Quote(m.Subscription))
	}
	if len(m.Attributes) > 0 {
		y.line(6, "attributes:")
		for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
			y.line(8, "%s: %s", strconv.Quote(name), strconv.Quote(m.Attributes[name]))
		}
	}
	if data, ok := s.dataLiteral(m, o); ok {
		y.line(6, "data: %s", data)
		return
	}
	if utf8.Valid(m.Data) && !bytes.HasPrefix(m.Data, []byte("{base64:")) {
		y.line(6, "raw: %s", strconv.Quote(string(m.Data)))
		return
	}
	y.line(6, "raw: {base64: %q}", base64.StdEncoding.EncodeToString(m.Data))
}

// namesRaw finds expressions that may look at the record's bytes.
var namesRaw = regexp.MustCompile(`\braw\b`)

// dataLiteral writes the body as values. It cannot where the body is no one value of
// JSON that decodes, or where an expression looks at its bytes.
func (s *Suite) dataLiteral(m *push.Message, o *outcome) (string, bool) {
	format := s.p.Write.Format
	if format != pipeline.FormatJSON && format != pipeline.FormatCloudEvent || namesRaw.MatchString(s.sources()) {
		return "", false
	}
	for _, r := range o.records {
		if r.Err != nil {
			return "", false
		}
	}
	dec := jsontext.NewDecoder(bytes.NewReader(m.Data))
	text, err := flow(dec)
	if err != nil {
		return "", false
	}
	if _, err := dec.ReadToken(); err == nil {
		return "", false
	}
	return text, true
}

// sources joins the text of all expressions.
func (s *Suite) sources() string {
	all := s.p.Write.Skip.Source
	for _, m := range s.write.Static() {
		for _, p := range m.All {
			all += "\n" + p.Source().Source
		}
	}
	return all
}

// flow writes JSON as YAML's flow style, members in order.
func flow(dec *jsontext.Decoder) (string, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return "", err
	}
	switch tok.Kind() {
	case '{':
		var members []string
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return "", err
			}
			key := word(name.String())
			v, err := flow(dec)
			if err != nil {
				return "", err
			}
			members = append(members, key+": "+v)
		}
		_, err = dec.ReadToken()
		return "{" + strings.Join(members, ", ") + "}", err
	case '[':
		var items []string
		for dec.PeekKind() != ']' {
			v, err := flow(dec)
			if err != nil {
				return "", err
			}
			items = append(items, v)
		}
		_, err = dec.ReadToken()
		return "[" + strings.Join(items, ", ") + "]", err
	case '"':
		return strconv.Quote(tok.String()), nil
	case '0':
		return flowNumber(tok.String())
	}
	return tok.String(), nil
}

// flowNumber keeps a number's text but for an exponent, which YAML readers take for
// different things.
func flowNumber(text string) (string, error) {
	if !strings.ContainsAny(text, "eE") {
		return text, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", err
	}
	return double(f)
}

// writeRow writes an expected row.
func writeRow(y *writing, r *mapping.Row) error {
	table := r.Schema.Name
	if !r.Schema.IDFrom.IsZero() {
		table = r.Table.Table
	}
	key, err := cellLiteral(r.Schema.Key, r.Entry.RowKey, "")
	if err != nil {
		return err
	}
	y.line(8, "- table: %s", strconv.Quote(table))
	y.line(10, "rowKey: %s", key)
	micros, ok := rowTime(written(r))
	if ok {
		y.line(10, "timestamp: %s", strconv.Quote(time.UnixMicro(micros).UTC().Format(testTime)))
	} else {
		micros = -1
	}
	y.line(10, "mutations:")
	w := mutationWriter{y: y, r: r, micros: micros, rest: written(r)}
	for len(w.rest) > 0 {
		if err := w.next(); err != nil {
			return err
		}
	}
	return nil
}

// rowTime returns the one time of a row's cells, where they have one that a test can
// write.
func rowTime(all []*bigtablepb.Mutation) (micros int64, ok bool) {
	for _, m := range all {
		at := int64(-1)
		switch c := m.Mutation.(type) {
		case *bigtablepb.Mutation_SetCell_:
			at = c.SetCell.TimestampMicros
		case *bigtablepb.Mutation_AddToCell_:
			at = c.AddToCell.Timestamp.GetRawTimestampMicros()
		case *bigtablepb.Mutation_MergeToCell_:
			at = c.MergeToCell.Timestamp.GetRawTimestampMicros()
		default:
			continue
		}
		if ok && at != micros || time.UnixMicro(at).UTC().Year() > 9999 {
			return 0, false
		}
		micros, ok = at, true
	}
	return micros, ok
}

// mutationWriter writes mutations in the vocabulary of the file.
type mutationWriter struct {
	y      *writing
	r      *mapping.Row
	micros int64 // of the row; -1: it has none
	rest   []*bigtablepb.Mutation
}

func (w *mutationWriter) next() error {
	switch c := w.rest[0].Mutation.(type) {
	case *bigtablepb.Mutation_AddToCell_:
		w.y.line(12, "- add: {%s: {%s: %d}}", word(c.AddToCell.FamilyName), qualifierKey(string(c.AddToCell.ColumnQualifier.GetRawValue())), c.AddToCell.Input.GetIntValue())
	case *bigtablepb.Mutation_MergeToCell_:
		w.y.line(12, "- merge: {%s: {%s: %q}}", word(c.MergeToCell.FamilyName), qualifierKey(string(c.MergeToCell.ColumnQualifier.GetRawValue())),
			base64.StdEncoding.EncodeToString(c.MergeToCell.Input.GetBytesValue()))
	case *bigtablepb.Mutation_DeleteFromFamily_:
		w.y.line(12, "- deleteFamilies: [%s]", word(c.DeleteFromFamily.FamilyName))
	case *bigtablepb.Mutation_DeleteFromRow_:
		w.y.line(12, "- deleteRow: true")
	case *bigtablepb.Mutation_SetCell_:
		return w.sets("")
	case *bigtablepb.Mutation_DeleteFromColumn_:
		if replace := w.replaced(w.rest); replace != "" {
			return w.sets(replace)
		}
		return w.deleteColumn(c.DeleteFromColumn)
	}
	w.rest = w.rest[1:]
	return nil
}

// replaced says how the set that begins m replaces, where it does.
func (w *mutationWriter) replaced(m []*bigtablepb.Mutation) pipeline.Replace {
	if len(m) < 2 || m[0].GetDeleteFromColumn() == nil || m[1].GetSetCell() == nil || columnOf(m[0]) != columnOf(m[1]) {
		return pipeline.ReplaceNothing
	}
	r := m[0].GetDeleteFromColumn().TimeRange
	switch {
	case r == nil:
		return pipeline.ReplaceAll
	case r.StartTimestampMicros == 0 && r.EndTimestampMicros == w.micros && w.micros > 0:
		return pipeline.ReplaceOlder
	}
	return pipeline.ReplaceNothing
}

// sets writes the sets that follow one another and replace alike as one, a line for
// each family, until a column or a family comes again.
func (w *mutationWriter) sets(replace pipeline.Replace) error {
	seen, ended := map[column]bool{}, map[string]bool{}
	family := ""
	w.y.line(12, "- set:")
	for len(w.rest) > 0 {
		m, n := w.rest[0], 1
		if replace != pipeline.ReplaceNothing {
			if w.replaced(w.rest) != replace {
				break
			}
			m, n = w.rest[1], 2
		}
		c := m.GetSetCell()
		if c == nil || seen[columnOf(m)] || ended[c.FamilyName] {
			break
		}
		f := w.r.Schema.Family(c.FamilyName)
		text, err := cellLiteral(f.Encoding(string(c.ColumnQualifier)), c.Value, w.r.Schema.NullString)
		if err != nil {
			return err
		}
		if family != c.FamilyName {
			ended[family], family = true, c.FamilyName
			w.y.line(16, "%s:", word(family))
		}
		w.y.line(18, "%s: %s", qualifierKey(string(c.ColumnQualifier)), text)
		seen[columnOf(m)] = true
		w.rest = w.rest[n:]
	}
	if replace != pipeline.ReplaceNothing {
		w.y.line(14, "replace: %s", replace)
	}
	return nil
}

func (w *mutationWriter) deleteColumn(c *bigtablepb.Mutation_DeleteFromColumn) error {
	w.y.line(12, "- deleteColumns: {%s: [%s]}", word(c.FamilyName), bytesLiteral(c.ColumnQualifier))
	start, end := c.TimeRange.GetStartTimestampMicros(), c.TimeRange.GetEndTimestampMicros()
	switch {
	case start == 0 && end == 0:
		w.y.line(14, "versions: all")
	case start == 0 && end == w.micros+1000 && w.micros >= 0:
		if null, ok := w.tombstone(); ok {
			w.y.line(14, "tombstone: true")
			w.rest = w.rest[null:]
		}
	default:
		for _, bound := range []struct {
			name   string
			micros int64
		}{{"from", start}, {"to", end}} {
			at := time.UnixMicro(bound.micros).UTC()
			switch {
			case at.Year() > 9999:
				return errNoLiteral
			case bound.micros != 0:
				w.y.line(14, "%s: %s", bound.name, strconv.Quote(at.Format(testTime)))
			}
		}
	}
	w.rest = w.rest[1:]
	return nil
}

// tombstone reports whether a null of the deleted column follows its deletion, and how
// many mutations that is.
func (w *mutationWriter) tombstone() (int, bool) {
	if len(w.rest) < 2 || w.rest[1].GetSetCell() == nil || columnOf(w.rest[0]) != columnOf(w.rest[1]) {
		return 0, false
	}
	c := w.rest[1].GetSetCell()
	null, err := w.r.Schema.Family(c.FamilyName).Encoding(string(c.ColumnQualifier)).Append(nil, nil, w.r.Schema.NullString)
	return 1, err == nil && bytes.Equal(null, c.Value)
}
