package pipeline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// source is a file's text by line, for what the nodes do not say.
type source struct {
	file  string
	lines []string
}

// lineBreak is what the YAML reader takes for the end of a line.
var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

func newSource(file string, data []byte) source {
	text := strings.TrimPrefix(string(data), "\ufeff")
	return source{file: file, lines: lineBreak.Split(text, -1)}
}

func (s source) pos(line, column int) Pos { return Pos{File: s.file, Line: line, Column: column} }

// from returns the text of a line from a column on; empty where there is none.
// Columns count characters.
func (s source) from(line, column int) string {
	if line < 1 || line > len(s.lines) {
		return ""
	}
	rest := s.lines[line-1]
	for ; column > 1 && rest != ""; column-- {
		_, n := utf8.DecodeRuneInString(rest)
		rest = rest[n:]
	}
	return rest
}

// readYAML returns the root node of the file's one document, or nil where there
// is none that could be read further.
func readYAML(s source, data []byte, errs *faults) *yaml.Node {
	if !checkText(s, errs) {
		return nil
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var first yaml.Node
	switch err := d.Decode(&first); {
	case err == io.EOF:
		errs.add(s.pos(1, 1), "", "the file is empty: a pipeline needs version, name and tables")
		return nil
	case err != nil:
		addSyntax(s, err, errs)
		return nil
	}
	if !endsFile(d, s, errs) {
		return nil
	}
	return first.Content[0]
}

// endsFile reports whether what follows the first document can be read. Nothing but
// comments may: --- or ... at the end of a file begins no second pipeline.
func endsFile(d *yaml.Decoder, s source, errs *faults) bool {
	for {
		var next yaml.Node
		switch err := d.Decode(&next); {
		case err == io.EOF:
			return true
		case err != nil:
			addSyntax(s, err, errs)
			return false
		case !isEmpty(&next):
			errs.add(s.pos(next.Line, next.Column), "", "a second document starts here: one file holds one pipeline, remove the ---")
			return true
		}
	}
}

// isEmpty reports whether a document has nothing in it.
func isEmpty(document *yaml.Node) bool {
	if len(document.Content) == 0 {
		return true
	}
	n := document.Content[0]
	return len(document.Content) == 1 && plain(n) && n.Value == "" && n.Anchor == "" && n.Tag != "!"
}

// checkText refuses what is not plain text. Tabs are refused wherever they stand,
// but only those that indent keep the rest from being read.
func checkText(s source, errs *faults) bool {
	ok := true
	for i, line := range s.lines {
		tab, bad := lineFaults(line)
		switch {
		case bad > 0:
			errs.add(s.pos(i+1, bad), "", "a byte that is not text: save the file as UTF-8 and write control characters as escapes inside double quotes")
			ok = false
		case strings.HasPrefix(line, "%"):
			errs.add(s.pos(i+1, 1), "", "a directive: leave it out, a pipeline is plain YAML")
			ok = false
		case tab > 0:
			errs.add(s.pos(i+1, tab), "", `a tab: indent with spaces, and write \t inside double quotes where one is meant`)
			ok = ok && strings.Trim(line[:strings.IndexByte(line, '\t')], " -") != ""
		}
	}
	return ok
}

// lineFaults returns the columns of a line's first tab and of its first byte that
// is not text; 0 where there is none.
func lineFaults(line string) (tab, bad int) {
	column := 0
	for i := 0; i < len(line); {
		r, width := utf8.DecodeRuneInString(line[i:])
		i += width
		column++
		switch {
		case r == '\t':
			if tab == 0 {
				tab = column
			}
		case r == utf8.RuneError && width == 1, r < 0x20, r >= 0x7F && r < 0xA0, r == 0xFEFF:
			return tab, column
		}
	}
	return tab, 0
}

// expressionKeys are the fields that hold expressions, where an unquoted one can
// break the YAML around it.
var expressionKeys = regexp.MustCompile(`^[\s-]*(?:[{,].*?)?\b(when|skip|rowKey|timestamp|forEach|idFrom|dedupeId|from|to|id|path|orderBy)\s*:\s*\S`)

// expressionLike tells the operators and calls of an expression from other text.
var expressionLike = regexp.MustCompile(`[=!<>]=|&&|\|\||\?.*:|\w\(|["'\]})]\s*[-+*/<>=?]|:\s+[@%` + "`" + `]`)

// fieldLine is a line that begins with a field; filledLine one that gives it a value too,
// which is no block that goes on below.
var (
	fieldLine  = regexp.MustCompile(`^[\w"'{][^:]*:( |$)`)
	filledLine = regexp.MustCompile(`^(- )*[\w"'{][^:]*: +[^ #|>]`)
	blockLine  = regexp.MustCompile(`: +[|>][-+1-9]*( +#.*)?$`) // its text is on the lines below
)

func addSyntax(s source, err error, errs *faults) {
	var load *yaml.LoadError
	if !errors.As(err, &load) || load.Mark.Line == 0 {
		errs.add(s.pos(1, 1), "", "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	pos := s.pos(load.Mark.Line, max(load.Mark.Column, 1))
	hint := cmp.Or(unclosedHint(s, pos.Line), colonHint(s, pos.Line-1), indentHint(s, pos.Line), expressionHint(s, pos.Line))
	errs.add(pos, "", "not YAML: %s%s", load.Message, hint)
}

// expressionHint says how an expression is quoted, if a line or the one above it may hold
// one. It is empty otherwise.
func expressionHint(s source, number int) string {
	for _, line := range []int{number, number - 1} {
		text := s.from(line, 1)
		if expressionKeys.MatchString(text) || expressionLike.MatchString(text) {
			return "; if this line holds an expression, put all of it in single quotes, or after | on a line of its own"
		}
	}
	return ""
}

// colonLine is a line that is a name and a value with nothing between the colon and the value.
var colonLine = regexp.MustCompile(`^\s*(?:- )*(\w+):([^\s:/]\S*)$`)

// colonHint says that a line lacks the space which makes a field of it: the YAML reader
// gives up at the next line.
func colonHint(s source, number int) string {
	m := colonLine.FindStringSubmatch(strings.TrimRight(s.from(number, 1), " "))
	if m == nil {
		return ""
	}
	return fmt.Sprintf("; line %d has no space after its colon: write %s: %s", number, m[1], m[2])
}

// disagreement says how readers disagree on a scalar that is ambiguous.
func disagreement(n *yaml.Node) string {
	return fmt.Sprintf("%s reads as %s in one version of YAML and as something else in another", n.Value, ambiguous(n))
}

// disagreed reports whether a node was reported because readers disagree on its text.
func (c *checker) disagreed(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Anchor == "" && c.coreTag(n) && ambiguous(n) != ""
}

// badNodes are reported already, and left alone.
type badNodes map[*yaml.Node]bool

// checker applies the rules that hold for every node, whatever it means.
type checker struct {
	source
	errs  *faults
	bad   badNodes
	depth int

	doubts faults // names that are probably not meant
}

// maxDepth bounds the nesting, far above what a pipeline says.
const maxDepth = 100

func (c *checker) fail(n *yaml.Node, place, format string, args ...any) {
	c.errs.add(c.pos(n.Line, n.Column), place, format, args...)
	c.bad[n] = true
}

func (c *checker) check(n *yaml.Node, place string) {
	c.depth++
	defer func() { c.depth-- }()
	switch {
	case c.depth > maxDepth:
		c.fail(n, place, "nested deeper than %d", maxDepth)
		return
	case n.Kind == yaml.AliasNode:
		c.fail(n, place, "an alias (*%s): write the value out", n.Value)
		return
	case !c.coreTag(n):
		c.tag(n, place)
		return
	case n.Anchor != "":
		c.fail(n, place, "an anchor (&%s): write the value out where it is needed", n.Anchor)
		return
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if ambiguous(n) != "" {
			c.fail(n, place, "%s: quote it, as in \"%s\"", disagreement(n), n.Value)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			c.check(item, fmt.Sprintf("%s[%d]", place, i))
		}
	case yaml.MappingNode:
		c.mapping(n, place)
	}
}

func (c *checker) mapping(n *yaml.Node, place string) {
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := child(place, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode:
			c.fail(key, place, `a key that is not plain text: quote a binary name whole, as in '{base64: "/w=="}'`)
		case key.Tag == "!!merge":
			c.fail(key, at, "a merge key: write the fields out where they are needed")
		default:
			c.check(key, at)
			if !c.bad[key] && plain(key) && resolve(key.Value) != "text" {
				c.fail(key, at, "a name must be text: quote it, as in \"%s\"", key.Value)
			}
		}
		if first, twice := seen[key.Value]; twice && key.Kind == yaml.ScalarNode {
			c.fail(key, at, "%q stands twice: it is on line %d already", key.Value, first.Line)
			c.bad[value] = true
		} else {
			seen[key.Value] = key
		}
		c.check(value, at)
	}
}

// child returns the place of a field below a place.
func child(place, key string) string {
	if !simpleKey.MatchString(key) {
		return fmt.Sprintf("%s[%q]", place, key)
	}
	if place == "" {
		return key
	}
	return place + "." + key
}

var simpleKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// plain reports whether a scalar stands unquoted, so that its text decides its type.
func plain(n *yaml.Node) bool {
	tagged := n.Style & yaml.TaggedStyle
	return n.Kind == yaml.ScalarNode && n.Style == tagged && (tagged == 0 || n.ShortTag() != "!!str")
}

// coreTag reports whether the node has no tag of its own, or one of the core
// schema that says what the text says anyway.
func (c *checker) coreTag(n *yaml.Node) bool {
	if n.Tag == "!" {
		return false
	}
	if n.Style&yaml.TaggedStyle == 0 {
		return true
	}
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!map", "!!seq":
		return true
	case "!!int", "!!float", "!!bool", "!!null":
		return plain(n) && "!!"+resolve(n.Value) == tag
	}
	return false
}

func (c *checker) tag(n *yaml.Node, place string) {
	written := strings.TrimSpace(c.from(n.Line, n.Column))
	if strings.HasPrefix(written, "!!") {
		c.fail(n, place, "a tag (%s): leave it out, the field says what it takes", n.ShortTag())
		return
	}
	what := "text"
	if n.Value == "" {
		what = "an empty value"
	}
	c.fail(n, place, "an unquoted ! makes a YAML tag on %s: quote the whole expression, as in '%s'", what, strings.ReplaceAll(written, "'", "''"))
}

// resolve returns what YAML 1.2's core schema takes a plain scalar for: null,
// bool, int, float or text.
func resolve(s string) string {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return "null"
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return "bool"
	}
	switch {
	case coreInt.MatchString(s):
		return "int"
	case coreFloat.MatchString(s):
		return "float"
	}
	return "text"
}

var (
	coreInt   = regexp.MustCompile(`^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	coreFloat = regexp.MustCompile(`^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

// readings are plain scalars that YAML 1.1 and 1.2 take for different things.
// Sources: yaml.org/type of YAML 1.1, and chapter 10.3 of YAML 1.2.2.
var readings = []struct {
	as   string
	form *regexp.Regexp
}{
	{"a boolean", regexp.MustCompile(`^(y|Y|n|N|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)$`)},
	{"an octal number", regexp.MustCompile(`^[-+]?0(o[0-7]+|[0-9_]+)$`)},
	{"a binary number", regexp.MustCompile(`^[-+]?0b[01_]+$`)},
	{"a hexadecimal number", regexp.MustCompile(`^([-+]0x[0-9a-fA-F_]+|0x[0-9a-fA-F]*_[0-9a-fA-F_]*)$`)},
	{"a number", regexp.MustCompile(`^[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?$`)},
	{"a number", regexp.MustCompile(`^[-+]?([0-9]+[eE][-+]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)[eE][0-9]+)$`)},
	{"a number in base 60", regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)},
	{"a time", regexp.MustCompile(`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}($|[Tt ])`)},
	{"a default value", regexp.MustCompile(`^=$`)},
}

// ambiguous returns what some YAML reader takes a plain scalar for and another
// does not; empty where all agree.
func ambiguous(n *yaml.Node) string {
	if !plain(n) {
		return ""
	}
	for _, r := range readings {
		if r.form.MatchString(n.Value) {
			return r.as
		}
	}
	return ""
}
