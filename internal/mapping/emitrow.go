package mapping

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// columnInfo is what there is to know of a declared column.
type columnInfo struct {
	family   *pipeline.Family
	encoding cell.Encoding
	head     []byte // the cell as JSON, up to its time
}

// declaredColumns finds columns by their names as the client has them, family:qualifier.
func declaredColumns(t *pipeline.Table) map[string]*columnInfo {
	out := map[string]*columnInfo{}
	for _, f := range t.Families {
		for _, c := range f.Columns {
			out[f.Name+":"+c.Qualifier] = &columnInfo{f, f.Encoding(c.Qualifier), cellHead(nil, f.Name, c.Qualifier)}
		}
	}
	return out
}

func cellHead(b []byte, family, qualifier string) []byte {
	b = quoted(append(b, `{"family":`...), family)
	b = quoted(append(b, `,"qualifier":`...), qualifier)
	return append(b, `,"timestamp":`...)
}

// appendRow prints every cell: family, qualifier, time and value, typed as declared.
func (m *Emitter) appendRow(b []byte) ([]byte, error) {
	b = appendKey(append(b, `{"rowKey":`...), m.table.Key, m.view.Key)
	if m.keysOnly {
		return append(b, '}'), nil
	}
	b = append(b, `,"cells":[`...)
	for i := range m.families {
		f := &m.families[i]
		for k := range f.items {
			if i+k > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = m.appendCell(b, f.name, &f.items[k]); err != nil {
				return nil, err
			}
		}
	}
	return append(b, ']', '}'), nil
}

func (m *Emitter) appendCell(b []byte, family string, item *bigtable.ReadItem) ([]byte, error) {
	qualifier := item.Column[len(family)+1:]
	info := m.columns[item.Column]
	if info != nil {
		b = append(b, info.head...)
	} else {
		info = m.undeclared(family, qualifier)
		b = cellHead(b, family, qualifier)
	}
	b = m.clock.append(b, int64(item.Timestamp))
	if len(item.Labels) > 0 {
		b = appendLabels(b, item.Labels)
	}
	b = append(b, `,"value":`...)
	if info.encoding.Kind == cell.String && string(item.Value) != m.table.NullString {
		if out, ok := appendText(b, item.Value); ok {
			return append(out, '}'), nil
		}
	}
	v, err := expr.DecodeCell(m.table, info.family, expr.Cell{Qualifier: qualifier, Value: item.Value})
	if err == nil {
		b, err = appendTyped(b, v, info.encoding.Kind)
		if err != nil {
			err = fmt.Errorf("a cell of family %s: %w", family, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

// undeclared is a column that the table does not name: bytes, or an aggregate.
func (e *Emit) undeclared(family, qualifier string) *columnInfo {
	info := &columnInfo{family: e.table.Family(family)}
	if info.family != nil {
		info.encoding = info.family.Encoding(qualifier)
	}
	return info
}

func appendLabels(b []byte, labels []string) []byte {
	b = append(b, `,"labels":[`...)
	for i, l := range labels {
		if i > 0 {
			b = append(b, ',')
		}
		b = quoted(b, l)
	}
	return append(b, ']')
}

// appendText appends text as JSON, and reports false, b as it was, where it is no text.
func appendText(b, text []byte) ([]byte, bool) {
	if !isPlain(text) {
		return appendEscaped(b, string(text))
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"'), true
}

// Bytes of a word, one in each place.
const (
	eachOne   = 0x0101010101010101
	eachHigh  = 0x80 * eachOne
	eachSpace = ' ' * eachOne
	eachQuote = '"' * eachOne
	eachSlash = '\\' * eachOne
)

// isPlain reports whether text is ASCII without anything that JSON escapes. It looks at
// eight bytes at a time.
func isPlain(text []byte) bool {
	for ; len(text) >= 8; text = text[8:] {
		x := binary.LittleEndian.Uint64(text)
		quote, slash := x^eachQuote, x^eachSlash
		// A byte less another has its high bit set where it was smaller, or 0 less 1.
		if (x|(x-eachSpace)|(quote-eachOne)|(slash-eachOne))&eachHigh != 0 {
			return isPlainSlow(text)
		}
	}
	return isPlainSlow(text)
}

func isPlainSlow(text []byte) bool {
	for _, c := range text {
		if c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func appendEscaped(b []byte, text string) ([]byte, bool) {
	out, err := jsonText.Append(b, text, "")
	return out, err == nil
}

// quoted appends text as JSON, and other bytes as an object that no text prints as.
func quoted(b []byte, s string) []byte {
	if out, ok := appendText(b, []byte(s)); ok {
		return out
	}
	return appendBase64(b, s)
}

func appendBase64(b []byte, s string) []byte {
	b = append(b, `{"base64":`...)
	b, _ = jsonText.Append(b, []byte(s), "") // bytes are never refused
	return append(b, '}')
}

// appendKey prints a row key in its declared encoding, and one that has no value of
// its own there as an object of its bytes.
func appendKey(b []byte, e cell.Encoding, key string) []byte {
	if e.Kind == cell.String {
		if out, ok := appendText(b, []byte(key)); ok {
			return out
		}
		return appendBase64(b, key)
	}
	v, err := expr.DecodeKey(e, key)
	if err == nil {
		var out []byte
		if out, err = appendTyped(b, v, e.Kind); err == nil {
			return out
		}
	}
	return appendBase64(b, key)
}

// clock prints cells' times. It remembers the day: of most tables, rows beside one
// another have few.
type clock struct {
	day  int64  // since the epoch
	date []byte // of the day, "2006-01-02T with the quote; nil before the first
}

// lastDay is the last day that a clock has known. It is safe for concurrent use.
type lastDay struct{ last atomic.Pointer[clock] }

// clock returns one that knows the day.
func (d *lastDay) clock() clock {
	if last := d.last.Load(); last != nil {
		return *last
	}
	return clock{}
}

// keep keeps the day that a clock knows now.
func (d *lastDay) keep(c clock) {
	if last := d.last.Load(); c.date != nil && (last == nil || !last.knows(c.day)) {
		kept := c // which alone is allocated, and only here
		d.last.Store(&kept)
	}
}

const (
	microsOfDay = 24 * 60 * 60 * 1_000_000
	nanosOfDay  = microsOfDay * 1000
)

// append prints a time as RFC 3339; one that no calendar holds as its microseconds.
func (c *clock) append(b []byte, micros int64) []byte {
	day, rest := micros/microsOfDay, micros%microsOfDay
	if rest < 0 {
		day, rest = day-1, rest+microsOfDay
	}
	if !c.knows(day) {
		t := time.UnixMicro(micros).UTC()
		if !cell.InCalendar(t) {
			return strconv.AppendInt(b, micros, 10)
		}
		c.learn(day, t)
	}
	return c.ofDay(b, rest*1000)
}

// appendTime prints a time that a calendar holds as RFC 3339, to the nanosecond.
func (c *clock) appendTime(b []byte, t time.Time) []byte {
	const secondsOfDay = nanosOfDay / 1_000_000_000
	seconds := t.Unix()
	day, rest := seconds/secondsOfDay, seconds%secondsOfDay
	if rest < 0 {
		day, rest = day-1, rest+secondsOfDay
	}
	if !c.knows(day) {
		c.learn(day, t.UTC())
	}
	return c.ofDay(b, rest*1_000_000_000+int64(t.Nanosecond()))
}

func (c *clock) knows(day int64) bool { return c.date != nil && day == c.day }

func (c *clock) learn(day int64, t time.Time) {
	c.day, c.date = day, t.AppendFormat(nil, `"2006-01-02T`) // another clock may share the last one
}

// ofDay prints the date and a time of the day, in nanoseconds.
func (c *clock) ofDay(b []byte, nanos int64) []byte {
	b = append(b, c.date...)
	seconds, fraction := nanos/1_000_000_000, nanos%1_000_000_000
	b = twoDigits(b, seconds/3600)
	b = twoDigits(append(b, ':'), seconds/60%60)
	b = twoDigits(append(b, ':'), seconds%60)
	if fraction > 0 {
		digits := [10]byte{'.'}
		last := 0
		for i := 9; i > 0; i-- {
			digits[i] = byte('0' + fraction%10)
			if last == 0 && fraction%10 > 0 {
				last = i
			}
			fraction /= 10
		}
		b = append(b, digits[:last+1]...)
	}
	return append(b, 'Z', '"')
}

func twoDigits(b []byte, n int64) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }
