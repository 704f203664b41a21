package pipeline

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"go.yaml.in/yaml/v4"
)

// shape is a form that some text of the file must have.
type shape struct {
	what string // what the text is
	rule string // what to write
	form *regexp.Regexp
	// quiet keeps what is written out of the error: it may be a secret in the
	// wrong place.
	quiet bool
}

// fault says what is wrong with a text that does not have the form.
func (s shape) fault(text string) string {
	if s.quiet {
		return "no " + s.what + ": " + s.rule
	}
	return fmt.Sprintf("%q is no %s: %s", text, s.what, s.rule)
}

// shapes are the forms by the name that the struct tags use. Sources: the field
// comments of Bigtable's admin API, and the resource naming rules of Pub/Sub,
// Cloud Storage, Cloud Tasks, IAM and Secret Manager.
var shapes = map[string]shape{
	"pipeline": {what: "pipeline name", rule: "2 to 17 lower-case letters, digits and dashes, a letter first and no dash last",
		form: regexp.MustCompile(`^[a-z][a-z0-9-]{0,15}[a-z0-9]$`)},
	"label": {what: "name", rule: "1 to 63 letters, digits, dashes, dots and underscores, a letter or digit first",
		form: regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]{0,62}$`)},
	"job": {what: "name", rule: "1 to 40 lower-case letters, digits and dashes, a letter first and no dash last",
		form: regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)},
	"project": {what: "project id", rule: "as the Cloud console shows it, without projects/",
		form: regexp.MustCompile(`^[a-z][-a-z0-9.:]{1,62}[a-z0-9]$`)},
	"instance": {what: "instance id", rule: "lower-case letters, digits and dashes, without instances/",
		form: regexp.MustCompile(`^[a-z][-a-z0-9]{0,31}[a-z0-9]$`)},
	"table": {what: "table id", rule: "1 to 50 letters, digits, dashes, dots and underscores, no dash or dot first",
		form: regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,49}$`)},
	"family": {what: "family name", rule: "1 to 64 letters, digits, dashes, dots and underscores, no dash or dot first",
		form: regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,63}$`)},
	"profile": {what: "application profile id", rule: "1 to 50 letters, digits, dashes, dots and underscores, no dash or dot first",
		form: regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,49}$`)},
	"topic": {what: "topic", rule: "the topic's id or projects/PROJECT/topics/ID",
		form: regexp.MustCompile(`^(projects/[^/\s]+/topics/)?[A-Za-z][-A-Za-z0-9._~+%]{2,254}$`)},
	"bucket": {what: "bucket name", rule: "3 to 222 lower-case letters, digits, dashes, dots and underscores, without gs://",
		form: regexp.MustCompile(`^[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]$`)},
	"object": {what: "object prefix", rule: "up to 900 characters, not starting with /",
		form: regexp.MustCompile(`^[^/\p{Cc}][^\p{Cc}]{0,899}$`)},
	"queue": {what: "queue id", rule: "1 to 100 letters, digits and dashes",
		form: regexp.MustCompile(`^[-A-Za-z0-9]{1,100}$`)},
	"location": {what: "location", rule: "such as us-central1",
		form: regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]+$`)},
	"account": {what: "service account", rule: "its name, or its address name@project.iam.gserviceaccount.com",
		form: regexp.MustCompile(`^[a-z0-9][-a-z0-9]{0,62}(@[-a-z0-9.]+)?$`)},
	"url": {what: "URL", rule: "such as https://example.com/hook, without a fragment",
		form: regexp.MustCompile(`^https?://[^/\s?#@]+(/[^\s#]*)?$`)},
	"secret": {what: "secret", rule: "the id of a secret in Secret Manager, or projects/PROJECT/secrets/ID, never the secret itself",
		form: regexp.MustCompile(`^(projects/[^/\s]+/secrets/)?[-_A-Za-z0-9]{1,255}$`), quiet: true},
	"header": {what: "header name", rule: "letters, digits and dashes",
		form: regexp.MustCompile(`^[A-Za-z][-A-Za-z0-9]{0,99}$`)},
	"headerValue": {what: "header value", rule: "printable ASCII",
		form: regexp.MustCompile(`^[\x20-\x7e]*$`), quiet: true},
	"attribute": {what: "attribute name", rule: "1 to 256 characters",
		form: regexp.MustCompile(`^[^\p{Cc}]{1,256}$`)},
	"output": {what: "field name", rule: "1 to 300 letters, digits and underscores, no digit first",
		form: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,299}$`)},
	"cluster": {what: "cluster id", rule: "lower-case letters, digits and dashes",
		form: regexp.MustCompile(`^[a-z][-a-z0-9]{0,28}[a-z0-9]$`)},
}

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
}

// toggle is true or false.
type toggle struct {
	at
	v bool
}

func (b *toggle) decode(d *decoder, n *yaml.Node, a at, _ field) {
	b.at = a
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

var decimalInt = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

// count is a whole number.
type count struct {
	at
	v int64
}

func (c *count) decode(d *decoder, n *yaml.Node, a at, f field) {
	c.at = a
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
	s, ok := d.scalar(n, &z.at, "a size such as 64MiB")
	if !ok {
		return
	}
	v, err := parseSize(s)
	if err != nil {
		d.reject(n, &z.at, "%q %v", s, err)
		return
	}
	low, _ := parseSize(f.lowest)
	if high, err := parseSize(f.highest); v < low || err == nil && v > high {
		d.reject(n, &z.at, "%s is out of bounds: write %s", s, bounds(f))
		return
	}
	z.v = v
}

// span is a duration in Go's notation.
type span struct {
	at
	v time.Duration
}

func (p *span) decode(d *decoder, n *yaml.Node, a at, f field) {
	p.at = a
	s, ok := d.scalar(n, &p.at, "a duration such as 10s")
	if !ok {
		return
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		d.reject(n, &p.at, "%q is no duration: write it as 500ms, 10s, 5m or 720h", s)
		return
	}
	low, _ := time.ParseDuration(f.lowest)
	if high, err := time.ParseDuration(f.highest); v < low || err == nil && v > high {
		d.reject(n, &p.at, "%s is out of bounds: write %s", s, bounds(f))
		return
	}
	p.v = v
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

// name is the literal bytes of a qualifier, key or prefix: text, or a mapping
// with base64.
type name struct {
	at
	v      string
	binary bool // written as base64
}

func (m *name) decode(d *decoder, n *yaml.Node, a at, _ field) {
	m.at = a
	if n.Kind == yaml.MappingNode && a.state != broken {
		if len(n.Content) != 2 || n.Content[0].Value != "base64" {
			d.reject(n, &m.at, `takes text or {base64: "…"}`)
			return
		}
		var inner text
		d.value(n.Content[1], reflectOf(&inner), child(a.place, "base64"), field{})
		v, err := decodeBase64(inner.v)
		if inner.ok() && err != nil {
			d.fail(n.Content[1], inner.place, "%v", err)
		}
		m.v, m.binary = string(v), true
		if !inner.ok() || err != nil {
			m.state = broken
		}
		return
	}
	var inner text
	inner.decode(d, n, a, field{})
	m.at = inner.at
	if !m.ok() {
		return
	}
	v, err := binaryName(inner.v)
	if err != nil {
		d.reject(n, &m.at, "%v", err)
		return
	}
	m.v = v
}

var binaryNameText = regexp.MustCompile(`^\{base64: "([^"]*)"\}$`)

// binaryName reads a name that stands where only text may: as a mapping's key,
// a binary one is the text {base64: "…"}.
func binaryName(s string) (string, error) {
	if m := binaryNameText.FindStringSubmatch(s); m != nil {
		b, err := decodeBase64(m[1])
		return string(b), err
	}
	if !utf8.ValidString(s) {
		return "", errors.New(`a name that is not text: write it as {base64: "…"}`)
	}
	return s, nil
}

// decodeBase64 reads the standard alphabet, padded, with no bit left over, so that
// one name has one spelling.
func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || base64.StdEncoding.EncodeToString(b) != s {
		return nil, errors.New("no base64: write it canonically, in the standard alphabet with its padding")
	}
	return b, nil
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
	v, err := regexp.Compile(`^(?:` + inner.v + `)$`)
	if _, alone := regexp.Compile(inner.v); err != nil || alone != nil {
		d.reject(n, &p.at, "%q is no RE2 pattern: %s", inner.v, patternFault(inner.v))
		return
	}
	p.v = v
}

func patternFault(s string) string {
	_, err := regexp.Compile(s)
	if err == nil {
		return "its brackets do not close"
	}
	return strings.TrimPrefix(err.Error(), "error parsing regexp: ")
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

func orSuggest(err error, s string) error {
	if hint := didYouMean(s, cell.Names()); strings.HasPrefix(hint, "; did") {
		return fmt.Errorf("%q is no encoding%s", s, hint)
	}
	return err
}

// literal is a value of a test, as JSON.
type literal struct {
	at
	v json.RawMessage
}

func (l *literal) decode(d *decoder, n *yaml.Node, a at, _ field) {
	l.at = a
	if a.state == broken {
		return
	}
	before := len(d.errs.list)
	l.v = d.json(nil, n, a.place)
	if len(d.errs.list) > before {
		l.state = broken
	}
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// json appends a node as JSON. Numbers keep their source text.
func (d *decoder) json(dst []byte, n *yaml.Node, place string) []byte {
	if d.bad[n] {
		return dst
	}
	switch n.Kind {
	case yaml.MappingNode:
		dst = append(dst, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, n.Content[i].Value), ':')
			dst = d.json(dst, n.Content[i+1], child(place, n.Content[i].Value))
		}
		return append(dst, '}')
	case yaml.SequenceNode:
		dst = append(dst, '[')
		for i, c := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = d.json(dst, c, fmt.Sprintf("%s[%d]", place, i))
		}
		return append(dst, ']')
	}
	if !plain(n) {
		return appendQuoted(dst, n.Value)
	}
	return d.jsonScalar(dst, n, place)
}

func (d *decoder) jsonScalar(dst []byte, n *yaml.Node, place string) []byte {
	switch resolve(n.Value) {
	case "null":
		if n.Value == "" {
			d.fail(n, place, `an empty value: write null, or "" for an empty text`)
		}
		return append(dst, "null"...)
	case "bool":
		return append(dst, strings.ToLower(n.Value)...)
	case "int", "float":
		if !jsonNumber.MatchString(n.Value) {
			d.fail(n, place, "%s is no number of JSON: write it in decimal digits, or quote it", n.Value)
		}
		return append(dst, n.Value...)
	}
	return appendQuoted(dst, n.Value)
}

func appendQuoted(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // json.Marshal refuses no string
	}
	return append(dst, b...)
}
