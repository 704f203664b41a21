package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"go.yaml.in/yaml/v4"
)

// scalar returns the text of a scalar node, or reports what else it is.
func (d *decoder) scalar(n *yaml.Node, a *at, takes string) (string, bool) {
	switch {
	case a.state == broken:
		return "", false
	case n.Kind != yaml.ScalarNode || plain(n) && n.Line > 0 && resolve(n.Value) == "null":
		d.wrong(n, *a, takes)
		a.state = broken
		return "", false
	}
	return n.Value, true
}

// reject reports a scalar whose text does not do.
func (d *decoder) reject(n *yaml.Node, a *at, format string, args ...any) {
	d.fail(n, a.place, format, args...)
	a.state = broken
}

// text is a text that YAML takes for text too.
type text struct {
	at
	v string
}

func (t *text) decode(d *decoder, n *yaml.Node, a at, f field) {
	t.at = a
	s, ok := d.scalar(n, &t.at, "text")
	if !ok {
		return
	}
	if plain(n) && a.pos.Line > 0 && resolve(n.Value) != "text" {
		d.reject(n, &t.at, "takes text, not %s: quote it, as in \"%s\"", describe(n), n.Value)
		return
	}
	if len(f.oneOf) > 0 && !slices.Contains(f.oneOf, s) {
		d.reject(n, &t.at, "%q is not known here%s", s, didYouMean(s, f.oneOf))
		return
	}
	if shape, ok := shapes[f.shape]; ok && !shape.form.MatchString(s) {
		d.reject(n, &t.at, "%s", shape.fault(s))
		return
	}
	t.v = s
	if f.key == "nullString" { // any text
		d.doubt(n, t.place)
	}
}

// toggle is true or false.
type toggle struct {
	at
	v bool
}

func (b *toggle) decode(d *decoder, n *yaml.Node, a at, _ field) {
	b.at = a
	if a.state == broken && d.disagreed(n) {
		d.errs.restate(a, "takes true or false, not %s%s", n.Value, truth(n.Value))
	}
	s, ok := d.scalar(n, &b.at, "true or false")
	if !ok {
		return
	}
	if !plain(n) || resolve(s) != "bool" {
		d.reject(n, &b.at, "takes true or false, not %s", describe(n))
		return
	}
	b.v = strings.EqualFold(s, "true")
}

// truth says how a boolean of YAML 1.1 is written.
func truth(s string) string {
	switch strings.ToLower(s) {
	case "y", "yes", "on":
		return ": write true"
	case "n", "no", "off":
		return ": write false"
	}
	return ""
}

var decimalInt = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

// count is a whole number.
type count struct {
	at
	v int64
}

func (c *count) decode(d *decoder, n *yaml.Node, a at, f field) {
	c.at = a
	if a.state == broken && d.disagreed(n) {
		d.errs.restate(a, "%s: write a whole number such as %s", disagreement(n), example(f, "10"))
	}
	s, ok := d.scalar(n, &c.at, "a whole number")
	if !ok {
		return
	}
	if !plain(n) || !decimalInt.MatchString(s) {
		d.reject(n, &c.at, "takes a whole number such as %s, not %s", example(f, "10"), numberless(n))
		return
	}
	v, err := strconv.ParseInt(strings.TrimPrefix(s, "+"), 10, 64)
	low, high := number(f.lowest, 0), number(f.highest, math.MaxInt64)
	if err != nil || v < low || v > high {
		d.reject(n, &c.at, "%s is out of bounds: write %s", s, bounds(f))
		return
	}
	c.v = v
}

// numberless describes what stands where a whole number should.
func numberless(n *yaml.Node) string {
	if plain(n) && resolve(n.Value) == "float" {
		return "a fraction"
	}
	if !plain(n) && decimalInt.MatchString(n.Value) {
		return "text: take the quotes off"
	}
	return describe(n)
}

func example(f field, otherwise string) string {
	switch {
	case f.initial != "":
		return f.initial
	case f.lowest != "":
		return f.lowest
	}
	return otherwise
}

func bounds(f field) string {
	switch {
	case f.lowest == f.highest:
		return f.lowest
	case f.highest == "":
		return "at least " + f.lowest
	case f.lowest == "":
		return "at most " + f.highest
	}
	return f.lowest + " to " + f.highest
}

// size is a number of bytes, written with its unit.
type size struct {
	at
	v int64
}

var sizeText = regexp.MustCompile(`^([0-9]{1,12})(B|KiB|MiB|GiB)$`)

func parseSize(s string) (int64, error) {
	m := sizeText.FindStringSubmatch(s)
	if m == nil {
		return 0, errors.New("takes a size such as 64MiB, in B, KiB, MiB or GiB")
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	shift := map[string]int{"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]]
	if n > math.MaxInt64>>shift {
		return 0, errors.New("is more bytes than can be counted")
	}
	return n << shift, nil
}

func (z *size) decode(d *decoder, n *yaml.Node, a at, f field) {
	z.at = a
	z.v = bounded(d, n, &z.at, f, "a size such as 64MiB", parseSize)
}

// span is a duration in Go's notation.
type span struct {
	at
	v time.Duration
}

func parseSpan(s string) (time.Duration, error) {
	v, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("is no duration: write it as 500ms, 10s, 5m or 720h")
	}
	return v, nil
}

func (p *span) decode(d *decoder, n *yaml.Node, a at, f field) {
	p.at = a
	p.v = bounded(d, n, &p.at, f, "a duration such as 10s", parseSpan)
}

// bounded reads what parse makes of a scalar and keeps it within the field's bounds.
// The error of parse goes on after the text.
func bounded[T cmp.Ordered](d *decoder, n *yaml.Node, a *at, f field, takes string, parse func(string) (T, error)) (v T) {
	s, ok := d.scalar(n, a, takes)
	if !ok {
		return v
	}
	read, err := parse(s)
	if err != nil {
		d.reject(n, a, "%q %v", s, err)
		return v
	}
	low, _ := parse(f.lowest)
	if high, err := parse(f.highest); read < low || err == nil && read > high {
		d.reject(n, a, "%s is out of bounds: write %s", s, bounds(f))
		return v
	}
	return read
}

// moment is a time in RFC 3339, to the millisecond, as cells have it.
type moment struct {
	at
	v time.Time
}

func (m *moment) decode(d *decoder, n *yaml.Node, a at, _ field) {
	m.at = a
	s, ok := d.scalar(n, &m.at, "a time such as \"2026-08-01T00:00:00Z\"")
	if !ok {
		return
	}
	v, err := parseMoment(s)
	if err != nil {
		d.reject(n, &m.at, "%q %v", s, err)
		return
	}
	m.v = v
}

// momentText is RFC 3339 without the liberties that Go's parser takes.
var momentText = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})$`)

func parseMoment(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	switch {
	case err != nil || !momentText.MatchString(s):
		return time.Time{}, errors.New(`is no time: write it as "2026-08-01T00:00:00Z"`)
	case t.Nanosecond()%int(time.Millisecond) != 0:
		return time.Time{}, errors.New("is finer than a millisecond, which is all that a cell's time holds")
	case t.Unix() < 0:
		return time.Time{}, errors.New("is before 1970, where no cell's time is")
	}
	return t.UTC(), nil
}

// pattern is a regular expression in RE2's syntax that must match all of a text.
type pattern struct {
	at
	v *regexp.Regexp
}

func (p *pattern) decode(d *decoder, n *yaml.Node, a at, _ field) {
	var inner text
	inner.decode(d, n, a, field{})
	p.at = inner.at
	if !p.ok() {
		return
	}
	if inner.v == "" {
		d.reject(n, &p.at, "an empty pattern matches nothing: leave the field out")
		return
	}
	v, err := regexp.Compile(inner.v) // alone first, so that )( does not pass
	if err == nil {
		v, err = regexp.Compile(patternHead + inner.v + patternTail)
	}
	if err != nil {
		d.reject(n, &p.at, "%q is no RE2 pattern: %s", inner.v, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		return
	}
	p.v = v
}

// patternHead and patternTail stand around a pattern, so that it matches in full.
const (
	patternHead = `^(?:`
	patternTail = `)$`
)

// PatternText returns the text in the file of a pattern of a Pipeline.
func PatternText(p *regexp.Regexp) string {
	return strings.TrimSuffix(strings.TrimPrefix(p.String(), patternHead), patternTail)
}

// encoding is the name of a cell encoding.
type encoding struct {
	at
	v cell.Encoding
}

func (e *encoding) decode(d *decoder, n *yaml.Node, a at, _ field) {
	e.at = a
	s, ok := d.scalar(n, &e.at, "an encoding such as int64")
	if !ok {
		return
	}
	v, err := cell.ParseEncoding(s)
	if err != nil {
		d.reject(n, &e.at, "%v", orSuggest(err, s))
		return
	}
	e.v = v
}

// otherTypes maps the names of types in other systems to the encodings that hold all their
// values.
var otherTypes = map[string]string{
	"int": "int64", "integer": "int64", "long": "int64", "bigint": "int64", "float": "float64", "double": "float64", "real": "float64",
	"str": "string", "text": "string", "varchar": "string", "boolean": "bool", "datetime": "timestamp", "binary": "bytes", "blob": "bytes",
	"object": "json", "struct": "json",
}

func orSuggest(err error, s string) error {
	word, _, _ := strings.Cut(strings.ToLower(s), "(")
	switch other := otherTypes[word]; {
	case other != "":
		return fmt.Errorf("%q is no encoding; did you mean %q?", s, other)
	case word == "numeric" || word == "number":
		return fmt.Errorf("%q is no encoding: write decimal(p,s), as in decimal(10,2)", s)
	}
	if hint := didYouMean(s, cell.Names()); strings.HasPrefix(hint, "; did") {
		return fmt.Errorf("%q is no encoding%s", s, hint)
	}
	return err
}
