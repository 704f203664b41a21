package lint

import (
	"slices"
	"strings"
	"unicode"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// key looks at the shape of a mapping's row key.
func (c *checker) key(m *mapping.Static) {
	place := m.Source.RowKey.Place
	if m.RowKey.IsConstant() {
		c.add(Warning, RuleHotKey, m.Source.RowKey.Pos, place,
			"is constant: all records go to one row, which one node serves; begin it with what tells records apart")
	}
	for _, l := range m.RowKey.Leads() {
		if shape := hotShape(l, m.Source.Table.Key.Kind.String()); shape.message != "" {
			c.add(shape.severity, RuleHotKey, l.Pos, place, "%s", shape.message)
		}
	}
	for _, pos := range m.RowKey.Doubles() {
		c.add(Warning, RuleDouble, pos, place,
			"a double becomes part of the key: numbers that print differently, as 0.1 and 0.10000000000000001, can be one key, and one number can be two: use text or an integer")
	}
	if k := m.Source.Table.Key.Kind.String(); strings.HasPrefix(k, "float") {
		c.add(Warning, RuleDouble, m.Source.RowKey.Pos, place,
			"the key of table %q is of type %s: rounding can make two records one row, and negative numbers do not sort: use an integer or text", m.Source.Table.Name, k)
	}
}

type shape struct {
	severity Severity
	message  string
}

// remedy is what to do about a key that grows.
const remedy = "all new rows then go to one tablet: begin it with a field that differs between neighbours, or with salt(…)"

// hotShape judges what a key begins with.
func hotShape(l expr.Lead, key string) shape {
	name := lastName(l.Path)
	switch {
	case l.Type == "timestamp" || l.Of == "timestamp" || l.Function == "utcDate":
		return shape{Warning, "begins with a time: " + remedy}
	case l.Path == messageID:
		return shape{Note, "begins with message.id, of whose order nothing is promised; where it counts up, " + remedy}
	case l.Function == "pad":
		return shape{Note, "begins with a padded number; if it counts up, " + remedy}
	case l.Function == "" && named(name, timeNames):
		return shape{Warning, "begins with " + l.Path + ", by its name a time: " + remedy}
	case l.Function == "" && named(name, sequenceNames):
		return shape{Warning, "begins with " + l.Path + ", by its name a sequence: " + remedy}
	case numeric[key] && l.Function != "hash" && l.Function != "salt":
		return shape{Note, "is a number; if it counts up, " + remedy}
	}
	return shape{}
}

// numeric are the key encodings whose order is that of numbers or times.
var numeric = map[string]bool{"int8": true, "int16": true, "int32": true, "int64": true, "decimal": true, "date": true, "time": true, "timestamp": true}

var (
	timeNames     = []string{"at", "time", "timestamp", "ts", "date", "datetime", "day", "hour", "minute", "epoch"}
	sequenceNames = []string{"seq", "sequence", "offset", "serial"}
	suffixes      = []string{"s", "sec", "seconds", "ms", "millis", "us", "micros", "ns", "nanos", "utc", "number", "no", "num", "id"}
)

func lastName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// named reports whether the words of a field's name end with one of names, a unit or
// the like behind it left out: created_at, eventTime, order-date, time_ms, sequenceNumber.
func named(field string, names []string) bool {
	words := words(field)
	if n := len(words); n > 1 && slices.Contains(suffixes, words[n-1]) {
		words = words[:n-1]
	}
	return len(words) > 0 && slices.Contains(names, words[len(words)-1])
}

// words takes a name apart at case, digits and punctuation, in lower case.
func words(name string) []string {
	var out []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			out = append(out, strings.ToLower(string(word)))
		}
		word = nil
	}
	lower := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && lower:
			end()
		}
		lower = unicode.IsLower(r)
		word = append(word, r)
	}
	end()
	return out
}

// view says what lint cannot know of a table that is used through an authorized view.
func (c *checker) view(t *pipeline.Table) {
	if t.AuthorizedView == "" {
		return
	}
	c.add(Note, RuleView, t.Pos, "tables."+t.Name+".authorizedView",
		"families and columns are checked against those declared here, and row keys are not checked: the file does not say what view %s includes, and Bigtable refuses with PERMISSION_DENIED what lies outside", t.AuthorizedView)
}
