package tail

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shownBytes is how many bytes of a value are shown.
const shownBytes = 64

// record is what is shown of the record that functions/changes publishes.
type record struct {
	RowKey     json.RawMessage `json:"rowKey"`
	Type       string          `json:"type"`
	Cluster    string          `json:"cluster"`
	CommitTime string          `json:"commitTime"`
	Entries    []entry         `json:"entries"`
}

type entry struct {
	Kind        string          `json:"kind"`
	Family      string          `json:"family"`
	Qualifier   json.RawMessage `json:"qualifier"`
	Timestamp   string          `json:"timestamp"`
	Value       json.RawMessage `json:"value"`
	ValueBase64 []byte          `json:"valueBase64"`
	Range       *struct {
		StartMicros int64  `json:"startMicros"`
		EndMicros   *int64 `json:"endMicros"`
	} `json:"range"`
}

// Lines returns a record of functions/changes as lines for a reader: one of the change, and
// an indented one of each entry. They may hold any character of the data.
func Lines(body []byte) ([]string, error) {
	var r record
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("reading the record of a change: %w", err)
	}
	by := r.Cluster
	if by == "" {
		by = "garbage collection"
	}
	lines := []string{fmt.Sprintf("%s  %s  by %s", r.CommitTime, text(r.RowKey), by)}
	for i := range r.Entries {
		lines = append(lines, "  "+r.Entries[i].line())
	}
	return lines, nil
}

func (e *entry) line() string {
	column := e.Family + ":" + text(e.Qualifier)
	switch e.Kind {
	case "SET_CELL":
		return fmt.Sprintf("set %s = %s  at %s", column, e.value(), e.Timestamp)
	case "ADD_TO_CELL":
		return fmt.Sprintf("add %s to %s  at %s", e.value(), column, e.Timestamp)
	case "MERGE_TO_CELL":
		return fmt.Sprintf("merge %s into %s  at %s", e.value(), column, e.Timestamp)
	case "DELETE_CELLS":
		return "delete " + column + e.times()
	case "DELETE_FAMILY":
		return "delete all of " + e.Family
	}
	return e.Kind + " " + column // a kind that is newer than this program
}

// times says which cells of a column are deleted; nothing if all are.
func (e *entry) times() string {
	switch r := e.Range; {
	case r == nil || r.StartMicros == 0 && r.EndMicros == nil:
		return ""
	case r.EndMicros == nil:
		return fmt.Sprintf("  from %d µs on", r.StartMicros)
	default:
		return fmt.Sprintf("  from %d µs to before %d µs", r.StartMicros, *r.EndMicros)
	}
}

// value is the decoded value if there is one; else the bytes, as text if they are text.
func (e *entry) value() string {
	if e.Value != nil {
		return string(e.Value)
	}
	b := e.ValueBase64
	if isText(b) {
		if utf8.RuneCount(b) <= shownBytes {
			return strconv.Quote(string(b))
		}
		return fmt.Sprintf("%q... (%d bytes)", string([]rune(string(b))[:shownBytes]), len(b))
	}
	if len(b) <= shownBytes {
		return "0x" + hex.EncodeToString(b)
	}
	return fmt.Sprintf("0x%s... (%d bytes)", hex.EncodeToString(b[:shownBytes]), len(b))
}

func isText(b []byte) bool {
	return utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return !unicode.IsPrint(r) })
}

// text is a text of a record. One that is no text stands in it as {"base64": …}, and is
// shown as it is there.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
