package expr

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/decls"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// nameFault is a name that cannot stand in its place.
type nameFault struct {
	at      common.Location
	message string
}

const (
	// pathHead is a variable and what is selected from it.
	pathHead = `[A-Za-z_]\w*(?:\.\??[A-Za-z_]\w*|\[[^\[\]]*\])*`
	// oddPart is a name that cannot stand behind a dot (CEL's language definition, syntax):
	// one with a dash, a reserved word, or one that begins with another character.
	oddPart = `[A-Za-z_]\w*(?:-[A-Za-z_]\w*)+|(?:in|true|false|null)\b|[$@][\w$@-]*|[0-9]\w*`
)

var (
	oddPath   = regexp.MustCompile(`(` + pathHead + `)\.(\??)(` + oddPart + `)`)
	oddTested = regexp.MustCompile(`\bhas\(\s*(` + pathHead + `)(?:\.(` + oddPart + `)|\["([^"]*)"\])\s*\)`)
)

// oddName finds a name that has to be written in brackets and is not: the parser may read it
// as a subtraction. It is called only for expressions that do not compile.
func oddName(e pipeline.Expr) *nameFault {
	source := e.Source
	shown := withoutTexts(source)
	if m := oddTested.FindStringSubmatchIndex(shown); m != nil {
		at := 4 // the name's place in m: behind a dot, or in brackets
		if m[at] < 0 {
			at = 6
		}
		return &nameFault{locate(source, m[0]), fmt.Sprintf("has() takes only names that can stand behind a dot: write %s in %s", inQuotes(source[m[at]:m[at+1]], e), source[m[2]:m[3]])}
	}
	m := oddPath.FindStringSubmatchIndex(shown)
	if m == nil {
		return nil
	}
	head, optional, name := source[m[2]:m[3]], source[m[4]:m[5]], source[m[6]:m[7]]
	index := fmt.Sprintf("%s[%s%s]", head, optional, inQuotes(name, e))
	if strings.Trim(name, "0123456789") == "" {
		return &nameFault{locate(source, m[6]), fmt.Sprintf("%s cannot stand behind a dot: an element of a list is %s[%s%s], a field of that name %s", name, head, optional, name, index)}
	}
	return &nameFault{locate(source, m[6]), fmt.Sprintf("%s cannot stand behind a dot: write %s", name, index)}
}

// withoutTexts returns the source with the insides of its texts replaced, byte for byte.
func withoutTexts(source string) string {
	out := []byte(source)
	quote := byte(0)
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote:
			quote = 0
		case quote != 0 && c == '\\' && i+1 < len(out):
			out[i], out[i+1] = 'x', 'x'
			i++
		case quote != 0:
			out[i] = 'x'
		}
	}
	return string(out)
}

// locate returns the line and column of a byte of the source.
func locate(source string, offset int) common.Location {
	before := source[:offset]
	line := 1 + strings.Count(before, "\n")
	return common.NewLocation(line, len([]rune(before[strings.LastIndexByte(before, '\n')+1:])))
}

// quoted says how a text is written so that its quotes reach the expression: YAML takes away
// the quotes around a whole value.
func quoted(name string, e pipeline.Expr) string {
	if strings.TrimSpace(e.Source) == name {
		return fmt.Sprintf(` twice, since YAML takes the outer quotes away: '"%s"'`, name)
	}
	return ": " + inQuotes(name, e)
}

// inQuotes quotes a text, with other quotes than those around the expression in the file.
func inQuotes(text string, e pipeline.Expr) string {
	if e.Quote == `"` {
		return "'" + text + "'"
	}
	return fmt.Sprintf("%q", text)
}

// otherNames maps the names that functions have in other languages to their names here.
var otherNames = map[string]string{
	"len": "size", "length": "size", "count": "size", "lower": "lowerAscii", "toLower": "lowerAscii", "toLowerCase": "lowerAscii", "upper": "upperAscii",
	"toUpper": "upperAscii", "toUpperCase": "upperAscii", "substr": "substring", "str": "string", "toString": "string", "float": "double",
	"number": "double", "parseInt": "int", "toInt": "int", "date": "utcDate", "sha256": "hash", "coalesce": "orValue", "getOrDefault": "orValue",
	"orElse": "orValue", "ifnull": "orValue", "ifNull": "orValue", "nvl": "orValue",
	"strip": "trim", "regex": "matches", "regexMatch": "matches", "includes": "contains", "concat": "join",
	"padStart": "pad", "lpad": "pad", "zfill": "pad", "truncate": "bucket", "any": "exists",
}

// macroForms maps the functions that the parser expands to the form of a call.
var macroForms = map[string]string{
	"has": "has(event.a)", "all": "….all(x, …)", "exists": "….exists(x, …)", "exists_one": "….exists_one(x, …)", "map": "….map(x, …)",
	"filter": "….filter(x, …)", "optMap": "….optMap(x, …)", "optFlatMap": "….optFlatMap(x, …)", "orValue": "….orValue(…)",
}

// unknownFunction names the function that was probably meant, in the form in which it is
// called.
func (env *Env) unknownFunction(name string) string {
	forms := maps.Clone(macroForms)
	for known, fn := range env.cel.Functions() {
		if !identifier.MatchString(known) || forms[known] != "" {
			continue
		}
		forms[known] = known + "(…)"
		if overloads := fn.OverloadDecls(); !slices.ContainsFunc(overloads, func(o *decls.OverloadDecl) bool { return !o.IsMemberFunction() }) {
			forms[known] = "…." + forms[known]
		}
	}
	if name == "now" {
		return "there is no now(): an expression gives the same at each delivery; the time of the message is message.publishTime"
	}
	meant := otherNames[name]
	if meant == "" {
		meant = pipeline.Nearest(name, slices.Sorted(maps.Keys(forms)))
	}
	if meant == "" {
		return fmt.Sprintf("%s is no function here", name)
	}
	return fmt.Sprintf("%s is no function here; did you mean %s?", name, forms[meant])
}
