package mapping

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Changes makes output records of the changes of a change stream, with the entries that its
// filter takes: each change whole, or what emit says. It is safe for concurrent use.
type Changes struct {
	template
	change    *pipeline.Change
	columns   map[string]*columnInfo
	tableName string // in full
	// byRowKey says that the bytes of the row key are the ordering key's source, which a key
	// has also if it has no value in its declared encoding.
	byRowKey bool
	// The days of the last change, and of its cells: those of the next one are mostly the same.
	today, cellDay lastDay
}

// CompileChanges compiles what a change stream makes of a change. Its error joins all faults,
// each with file, line and column.
func CompileChanges(c *pipeline.Change) (*Changes, error) {
	vocabulary := func(withItem bool) (*expr.Env, error) { return expr.NewChangeEnv(c.Table, withItem) }
	t, err := compileTemplate(c.Emit, c.To.PubSub, vocabulary)
	if err != nil {
		return nil, err
	}
	m := &Changes{template: t, change: c, columns: declaredColumns(c.Table), tableName: c.Table.Ref().String()}
	if t.orderBy != nil && t.orderBy.Source().Source == "rowKey" {
		m.orderBy, m.byRowKey = nil, true
	}
	return m, nil
}

// errOversize is why a change that was too large to be held makes no record.
var errOversize = errors.New("it has more bytes than maxRecordBytes")

// ID returns the id of a change, the same whenever and wherever it is read.
func (m *Changes) ID(r *changestream.Record) string { return r.ID(m.tableName) }

// IsWhole reports whether each change makes one record, which is its Body. Otherwise a Changer
// makes the records.
func (m *Changes) IsWhole() bool {
	return m.when == nil && m.forEach == nil && m.fields == nil && m.orderBy == nil && m.fixed != nil
}

// OrderingKey returns the hex of a hash of the row key, where the file asks for one.
func (m *Changes) OrderingKey(r *changestream.Record) string {
	if !m.byRowKey {
		return ""
	}
	sum := sha256.Sum256([]byte(r.RowKey))
	return hex.EncodeToString(sum[:16])
}

// Check returns why no record can be made of a change, nil where one can. The error quotes
// nothing of the change.
func (m *Changes) Check(r *changestream.Record) error {
	if r.Oversize {
		return &OutputError{Err: fmt.Errorf("a change of %d bytes: %w", r.Bytes, errOversize)}
	}
	return nil
}

// Body returns the record of a change as a JSON object, and how many entries the filter has
// left out. The object is nil if the filter takes no entry and the file says dropEmpty. The
// error is that of Check.
func (m *Changes) Body(r *changestream.Record) (body []byte, filtered int, err error) {
	if err := m.Check(r); err != nil {
		return nil, 0, err
	}
	today, cells := m.today.clock(), m.cellDay.clock()
	b := appendKey(append(make([]byte, 0, bodyBytes(r)), `{"rowKey":`...), m.change.Table.Key, r.RowKey)
	b = appendBytes(append(b, `,"rowKeyBase64":`...), []byte(r.RowKey))
	b = append(b, `,"type":"`...)
	b = append(append(b, r.Type.String()...), `","cluster":`...)
	if r.Cluster == "" {
		b = append(b, "null"...)
	} else {
		b = quoted(b, r.Cluster)
	}
	b = today.appendTime(append(b, `,"commitTime":`...), r.CommitTime)
	b = strconv.AppendInt(append(b, `,"tieBreaker":`...), int64(r.TieBreaker), 10)
	b = today.appendTime(append(b, `,"lowWatermark":`...), r.LowWatermark)
	b = append(b, `,"entries":[`...)
	for i := range r.Entries {
		e := &r.Entries[i]
		if !m.takes(e) {
			filtered++
			continue
		}
		if i > filtered {
			b = append(b, ',')
		}
		b = m.appendEntry(b, &cells, i, e)
	}
	m.today.keep(today)
	m.cellDay.keep(cells)
	if filtered == len(r.Entries) && m.change.Filter.DropEmpty {
		return nil, filtered, nil
	}
	return append(b, ']', '}'), filtered, nil
}

// bodyBytes is about how long the record of a change is: what all have, what each entry has,
// and the bytes of the change in base64 or twice as text.
func bodyBytes(r *changestream.Record) int64 { return 250 + 250*int64(len(r.Entries)) + r.Bytes*3/2 }

// takes reports whether the filter takes an entry. A deleted family has no qualifier, so
// that the family's name alone decides on it.
func (m *Changes) takes(e *changestream.Entry) bool {
	f := &m.change.Filter
	if !f.Families.Match(e.Family) {
		return false
	}
	if e.Kind == changestream.DeleteFamily || len(f.Qualifiers.Include)+len(f.Qualifiers.Exclude) == 0 {
		return true
	}
	return f.Qualifiers.Match(e.Family + ":" + base64.StdEncoding.EncodeToString([]byte(e.Qualifier)))
}

// appendEntry prints an entry under its place in the change, which a filter leaves as it
// is.
func (m *Changes) appendEntry(b []byte, clock *clock, index int, e *changestream.Entry) []byte {
	b = strconv.AppendInt(append(b, `{"index":`...), int64(index), 10)
	b = append(append(append(b, `,"kind":"`...), e.Kind.String()...), '"')
	b = quoted(append(b, `,"family":`...), e.Family)
	if e.Kind != changestream.DeleteFamily {
		b = quoted(append(b, `,"qualifier":`...), e.Qualifier)
		b = appendBytes(append(b, `,"qualifierBase64":`...), []byte(e.Qualifier))
	}
	switch e.Kind {
	case changestream.DeleteCells:
		b = appendDeleteRange(b, e)
	case changestream.SetCell, changestream.AddToCell, changestream.MergeToCell:
		b = clock.append(append(b, `,"timestamp":`...), e.Timestamp)
		b = strconv.AppendInt(append(b, `,"timestampMicros":`...), e.Timestamp, 10)
		b = m.appendValue(b, e)
	}
	return append(b, '}')
}

// appendDeleteRange prints the cell times that are deleted, in microseconds.
func appendDeleteRange(b []byte, e *changestream.Entry) []byte {
	b = append(b, `,"range":{"startBound":"CLOSED","startMicros":`...)
	b = strconv.AppendInt(b, e.Start, 10)
	if e.End == 0 {
		return append(b, `,"endBound":"UNBOUNDED","endMicros":null}`...)
	}
	b = strconv.AppendInt(append(b, `,"endBound":"OPEN","endMicros":`...), e.End, 10)
	return append(b, '}')
}

// appendValue prints the content of an entry: a number, or its bytes. Beside the bytes it
// prints the value, if the column is declared and they are of its type.
func (m *Changes) appendValue(b []byte, e *changestream.Entry) []byte {
	if e.IsNumber {
		return strconv.AppendInt(append(b, `,"valueType":"INT64","value":`...), e.Number, 10)
	}
	b = appendBytes(append(b, `,"valueType":"RAW_VALUE","valueBase64":`...), e.Value)
	info := m.columns[e.Family+":"+e.Qualifier]
	if info == nil || e.Kind != changestream.SetCell {
		return b
	}
	v, err := expr.DecodeCell(m.change.Table, info.family, expr.Cell{Qualifier: e.Qualifier, Value: e.Value})
	if err != nil {
		return b
	}
	if out, err := appendTyped(append(b, `,"value":`...), v, info.encoding.Kind); err == nil {
		return out
	}
	return b
}

func appendBytes(b, v []byte) []byte {
	b = base64.StdEncoding.AppendEncode(append(b, '"'), v)
	return append(b, '"')
}
