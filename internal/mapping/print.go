package mapping

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Lines prints the mutations of an entry, one a line, values in the encodings that
// the schema declares. It is for a user's eyes: it holds the record's data.
func Lines(schema *pipeline.Table, entry *bigtablepb.MutateRowsRequest_Entry) []string {
	out := make([]string, len(entry.Mutations))
	for i, m := range entry.Mutations {
		out[i] = line(schema, m)
	}
	return out
}

// Key prints a row key in the encoding that the schema declares.
func Key(schema *pipeline.Table, key []byte) string {
	if schema.Key.Kind == cell.Bytes {
		return printBytes(key)
	}
	return printValue(schema.Key, key, "")
}

func line(schema *pipeline.Table, m *bigtablepb.Mutation) string {
	switch m := m.Mutation.(type) {
	case *bigtablepb.Mutation_SetCell_:
		c := m.SetCell
		return fmt.Sprintf("set %s = %s @ %s", columnName(c.FamilyName, c.ColumnQualifier),
			printCell(schema, c.FamilyName, c.ColumnQualifier, c.Value), printMicros(c.TimestampMicros))
	case *bigtablepb.Mutation_DeleteFromColumn_:
		c := m.DeleteFromColumn
		return "deleteColumns " + columnName(c.FamilyName, c.ColumnQualifier) + printRange(c.TimeRange)
	case *bigtablepb.Mutation_DeleteFromFamily_:
		return "deleteFamilies " + m.DeleteFromFamily.FamilyName
	case *bigtablepb.Mutation_DeleteFromRow_:
		return "deleteRow"
	case *bigtablepb.Mutation_AddToCell_:
		c := m.AddToCell
		return fmt.Sprintf("add %s += %d @ %s", columnName(c.FamilyName, c.ColumnQualifier.GetRawValue()),
			c.Input.GetIntValue(), printMicros(c.Timestamp.GetRawTimestampMicros()))
	case *bigtablepb.Mutation_MergeToCell_:
		c := m.MergeToCell
		return fmt.Sprintf("merge %s <- %s @ %s", columnName(c.FamilyName, c.ColumnQualifier.GetRawValue()),
			printBytes(c.Input.GetBytesValue()), printMicros(c.Timestamp.GetRawTimestampMicros()))
	}
	return fmt.Sprintf("unknown mutation %T", m.Mutation)
}

// columnName quotes a qualifier that would be read as something else.
func columnName(family string, qualifier []byte) string {
	text := string(qualifier)
	quoted := strconv.Quote(text)
	if text == "" || quoted != `"`+text+`"` || strings.ContainsAny(text, " :=@[]+<") {
		text = quoted
	}
	return family + ":" + text
}

func printCell(schema *pipeline.Table, family string, qualifier, value []byte) string {
	f := schema.Family(family)
	if f == nil {
		return printBytes(value)
	}
	return printValue(f.Encoding(string(qualifier)), value, schema.NullString)
}

func printValue(e cell.Encoding, value []byte, nullString string) string {
	v, err := e.Decode(value, nullString)
	if err != nil {
		return printBytes(value)
	}
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		if e.Kind == cell.Decimal {
			return v
		}
		return strconv.Quote(v)
	case []byte:
		return printBytes(v)
	case float64:
		if e.Kind == cell.Float32 {
			return fmt.Sprint(float32(v))
		}
	case time.Time:
		if e.Kind == cell.Date {
			return v.Format(time.DateOnly)
		}
		return printMicros(v.UnixMicro())
	case map[string]any, []any:
		var b bytes.Buffer
		if err := json.Compact(&b, value); err != nil {
			return printBytes(value)
		}
		return b.String()
	}
	return fmt.Sprint(v)
}

func printBytes(b []byte) string { return "0x" + hex.EncodeToString(b) }

// printMicros prints a cell's time; one that no calendar holds, as its microseconds.
func printMicros(micros int64) string {
	t := time.UnixMicro(micros).UTC()
	if micros < 0 || t.Year() > 9999 {
		return strconv.FormatInt(micros, 10)
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

// printRange prints a range of versions: both ends as times that belong to it, as far
// as whole milliseconds go; nothing for all versions.
func printRange(r *bigtablepb.TimestampRange) string {
	if r == nil || r.StartTimestampMicros == 0 && r.EndTimestampMicros == 0 {
		return ""
	}
	start, end := "..", ".."
	if r.StartTimestampMicros != 0 {
		start = printMicros(r.StartTimestampMicros)
	}
	if r.EndTimestampMicros != 0 {
		end = printMicros(r.EndTimestampMicros - 1000)
	}
	return " [" + start + ", " + end + "]"
}
