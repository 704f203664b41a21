package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/decls"
)

// foreign are forms of other languages, each with a hint at the form of this one. A form is
// matched against the source without the insides of its texts.
var foreign = []struct {
	form *regexp.Regexp
	hint string
}{
	{regexp.MustCompile(`<>`), "inequality is !="},
	{regexp.MustCompile(`\bnot\s+[\w(]`), "not is !"},
	{regexp.MustCompile(`\bin\s*\([^()]*,`), "a list is in brackets, as in [a, b]"},
	{regexp.MustCompile(`=~|\blike\b`), "a pattern is ….matches(…)"},
	{regexp.MustCompile(`\?\?`), "a default is event.?name.orValue(…)"},
	{regexp.MustCompile(`\w\?\.`), "an optional field is event.?name"},
	{regexp.MustCompile(`^\s*[A-Za-z_]\w*(\s+[A-Za-z_]\w*)+\s*$`), "text stands in quotes"},
}

// foreignHint names the form of this language, if a source that cannot be parsed holds one
// of another language. It is empty otherwise.
func foreignHint(source string) string {
	shown := withoutTexts(source)
	for _, f := range foreign {
		if f.form.MatchString(shown) {
			return " (" + f.hint + ")"
		}
	}
	return ""
}

// wrongSide says that a function stands behind its value and should stand before it, or the
// other way round. It is empty if the function is on the right side.
func (env *Env) wrongSide(e ast.Expr) string {
	if e == nil || e.Kind() != ast.CallKind {
		return ""
	}
	name, behind := e.AsCall().FunctionName(), e.AsCall().IsMemberFunction()
	fn := env.cel.Functions()[name]
	if fn == nil || !identifier.MatchString(name) || slices.ContainsFunc(fn.OverloadDecls(), func(o *decls.OverloadDecl) bool { return o.IsMemberFunction() == behind }) {
		return ""
	}
	if behind {
		return fmt.Sprintf("%s() takes its value in the parentheses: write %[1]s(…)", name)
	}
	args := "…"
	if len(e.AsCall().Args()) == 1 {
		args = ""
	}
	return fmt.Sprintf("%s() stands behind its value: write ….%[1]s(%s)", name, args)
}

// ofAdded lists the types of the arguments of a function that the pipeline language adds,
// and says how the first value of another type is converted. It is empty for other functions.
func (c *call) ofAdded() string {
	all := added()
	i := slices.IndexFunc(all, func(f function) bool { return f.name == c.function })
	switch {
	case i < 0:
		return ""
	case c.function == "key":
		return fmt.Sprintf(": it takes 1 to %d parts", maxKeyParts)
	}
	var takes []string
	for _, o := range all[i].overloads {
		takes = append(takes, "("+strings.Join(argumentTypes(o), ", ")+")")
	}
	hint := ": it takes " + strings.Join(takes, " or ")
	if len(takes) > 1 {
		return hint
	}
	want := argumentTypes(all[i].overloads[0])
	if len(want) != len(c.types) {
		return hint
	}
	for i, has := range c.types {
		if has != want[i] && has != "dyn" {
			return hint + c.conversion(i, want[i])
		}
	}
	return hint
}

// conversion says how the argument at i becomes one of type want.
func (c *call) conversion(i int, want string) string {
	switch has := c.types[i]; {
	case has == "string" && want == "bytes":
		return ": convert the text with bytes(…)"
	case has == "string":
		return c.beside(i, want)
	case want == "string":
		return fmt.Sprintf(": convert the %s with string(…)", has)
	case has == "int" && want == "timestamp":
		return `: convert seconds since 1970 with timestamp(), and milliseconds with timestamp(0) + duration(string(event.at) + "ms")`
	}
	return ""
}

func argumentTypes(o overload) []string {
	names := make([]string, len(o.args))
	for i, t := range o.args {
		names[i] = plainTypes(t.String())
	}
	return names
}
