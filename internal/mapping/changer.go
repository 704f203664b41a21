package mapping

import (
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Changer makes records of changes as emit says, one change after another. It is for one
// goroutine at a time.
type Changer struct {
	*Changes
	maker
	record *changestream.Record // the change at hand
	view   expr.Change
	// printed is the whole change as JSON, once a record asked for it.
	printed []byte
}

// New returns a Changer.
func (m *Changes) New() *Changer {
	c := &Changer{Changes: m, maker: maker{template: &m.template}}
	c.view = expr.Change{Row: expr.Row{Table: m.change.Table}, Entries: c.entries}
	c.vars.Change = &c.view
	c.whole = c.appendChange
	return c
}

// appendChange appends the whole change: the same for every element of forEach.
func (c *Changer) appendChange(b []byte) ([]byte, error) {
	if c.printed == nil {
		var err error
		if c.printed, _, err = c.Body(c.record); err != nil {
			return nil, err
		}
	}
	return append(b, c.printed...), nil
}

// Change makes the records of a change, and counts the entries that the filter has left out.
// There are none if when says no, forEach has none, or the filter takes no entry and the file
// says dropEmpty. The slice is good until the next call, what is in it for ever. The error is
// an *OutputError.
func (c *Changer) Change(r *changestream.Record) (outs []Output, filtered int, err error) {
	if err := c.Check(r); err != nil {
		return nil, 0, err
	}
	for i := range r.Entries {
		if !c.takes(&r.Entries[i]) {
			filtered++
		}
	}
	if filtered == len(r.Entries) && c.change.Filter.DropEmpty {
		return nil, filtered, nil
	}
	c.record, c.maker.bytes = r, int(r.Bytes)
	c.view.Reset(r.RowKey)
	c.view.Type, c.view.Cluster, c.view.TieBreaker = r.Type.String(), r.Cluster, r.TieBreaker
	c.view.CommitTime, c.view.LowWatermark = r.CommitTime, r.LowWatermark
	outs, err = c.outputs()
	c.record, c.printed = nil, nil // so that they do not outlive their change
	if c.byRowKey && len(outs) > 0 {
		key := c.OrderingKey(r)
		for i := range outs {
			outs[i].OrderingKey = key
		}
	}
	return outs, filtered, err
}

// entries are those that the filter takes, as expressions see them.
func (c *Changer) entries() []any {
	out := make([]any, 0, len(c.record.Entries))
	for i := range c.record.Entries {
		if e := &c.record.Entries[i]; c.takes(e) {
			out = append(out, c.entry(i, e))
		}
	}
	return out
}

// entry has the names that appendEntry prints, with bytes as they are in valueBytes instead of
// base64. As there, it has no value if the bytes are not of the column's type; the value of an
// undeclared column is its bytes.
func (c *Changer) entry(index int, e *changestream.Entry) map[string]any {
	out := map[string]any{"index": int64(index), "kind": e.Kind.String(), "family": pipeline.NameText(e.Family)}
	if e.Kind != changestream.DeleteFamily {
		out["qualifier"] = pipeline.NameText(e.Qualifier)
	}
	switch e.Kind {
	case changestream.DeleteCells:
		deleted := map[string]any{"startMicros": e.Start}
		if e.End != 0 {
			deleted["endMicros"] = e.End
		}
		out["range"] = deleted
	case changestream.SetCell, changestream.AddToCell, changestream.MergeToCell:
		out["timestampMicros"] = e.Timestamp
		out["timestamp"] = entryTime(e.Timestamp)
		c.setValue(out, e)
	}
	return out
}

// entryTime is a cell's time; one that no calendar holds is its microseconds.
func entryTime(micros int64) any {
	if t := time.UnixMicro(micros).UTC(); cell.InCalendar(t) {
		return t
	}
	return micros
}

// setValue sets the content of an entry: a number, or bytes and the value that they stand for.
func (c *Changer) setValue(out map[string]any, e *changestream.Entry) {
	if e.IsNumber {
		out["value"] = e.Number
		return
	}
	out["valueBytes"] = e.Value
	info := c.columns[e.Family+":"+e.Qualifier]
	if info == nil || e.Kind != changestream.SetCell {
		out["value"] = e.Value
		return
	}
	if v, err := expr.DecodeCell(c.change.Table, info.family, expr.Cell{Qualifier: e.Qualifier, Value: e.Value}); err == nil {
		out["value"] = v
	}
}
