package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// call is a call that takes none of the types at hand.
type call struct {
	function string
	types    []string
	args     []ast.Expr      // the target first; nil where they are not known
	table    *pipeline.Table // of rows; nil for records
}

// callArgs are the arguments of a call, its target first.
func callArgs(e ast.Expr) []ast.Expr {
	if e == nil || e.Kind() != ast.CallKind {
		return nil
	}
	c := e.AsCall()
	if c.IsMemberFunction() {
		return append([]ast.Expr{c.Target()}, c.Args()...)
	}
	return c.Args()
}

// message names the types at hand and the conversion to write.
func (c *call) message() string {
	if c.function == nonNull {
		return "orValue stands after an optional value: write event.?a.orValue(…)"
	}
	return fmt.Sprintf("%s does not take (%s)%s", displayName(c.function), strings.Join(c.types, ", "), c.hint())
}

func (c *call) hint() string {
	has := func(t string) bool { return slices.Contains(c.types, t) }
	takes := c.ofAdded()
	switch {
	case slices.ContainsFunc(c.types, func(t string) bool { return strings.HasPrefix(t, "optional(") }):
		return ": give the optional value a default with .orValue(…), or compute with it where it is present, in .optMap(x, …)"
	case c.function == operators.Add && has("string") && has("bytes"):
		return c.besideBytes()
	case takes != "":
		return takes
	case len(c.types) < 2:
		return ""
	case !has("string"):
		if has("int") && has("double") {
			return ": convert the int with double(…)"
		}
		return ""
	}
	for _, t := range []string{"int", "uint", "double", "bool", "timestamp", "duration"} {
		if has(t) {
			return c.beside(slices.Index(c.types, "string"), t)
		}
	}
	return ""
}

// besideBytes says how text is joined to bytes. A text with an escape that looks like a
// byte is meant to be bytes.
func (c *call) besideBytes() string {
	if len(c.args) == len(c.types) {
		if s, ok := literalText(c.args[slices.Index(c.types, "string")]); ok && strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 && r <= 0xFF }) {
			return `: bytes are written with a b before the quote, as in b"\xff"; in a text \xff is the character ÿ, which is two bytes`
		}
	}
	return ": convert the text with bytes(…)"
}

// beside says how the text at i is converted, if a value of type t stands beside it or is
// taken in its place.
func (c *call) beside(i int, t string) string {
	if len(c.args) == len(c.types) {
		text := c.args[i]
		if name, ok := c.decimal(text); ok && (t == "int" || t == "uint" || t == "double") {
			return fmt.Sprintf(": a decimal is text, every digit of it: convert it with double(%s)", name)
		}
		if s, ok := literalText(text); ok && c.function != operators.Add {
			if literal := literalOf(t, s); literal != "" {
				return ": write " + literal + unquoted(literal)
			}
		}
	}
	switch {
	case c.function == operators.Add:
		return fmt.Sprintf(": convert the %s with string(…)", t)
	case examples[t] != "":
		return fmt.Sprintf(": convert the text with %s(…), as in %s", t, examples[t])
	}
	return fmt.Sprintf(": convert the text with %s(…)", t)
}

// examples are literals of the types whose text has a form of its own.
var examples = map[string]string{
	"timestamp": `timestamp("2026-08-30T00:00:00Z")`,
	"duration":  `duration("1h30m")`,
}

// decimal reports whether e is a decimal column, and how to write it.
func (c *call) decimal(e ast.Expr) (string, bool) { return decimalColumn(c.table, e) }

func decimalColumn(t *pipeline.Table, e ast.Expr) (string, bool) {
	for e.Kind() == ast.CallKind && len(callArgs(e)) > 0 && slices.Contains([]string{"orValue", nonNull, "value", "dyn"}, e.AsCall().FunctionName()) {
		e = callArgs(e)[0]
	}
	if t == nil {
		return "", false
	}
	if e.Kind() == ast.IdentKind && e.AsIdent() == "rowKey" {
		return "rowKey", t.Key.Kind == cell.Decimal
	}
	names, ok := rowPath(e)
	if !ok || len(names) != 2 {
		return "", false
	}
	f := t.Family(names[0])
	if f == nil || f.Encoding(names[1]).Kind != cell.Decimal {
		return "", false
	}
	if afterDot(names[0]) && afterDot(names[1]) {
		return rowVariable + "." + names[0] + "." + names[1], true
	}
	return fmt.Sprintf("row[%q][%q]", names[0], names[1]), true
}

func literalText(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().Value().(string)
	return s, ok
}

// literalOf returns how a value of type t is written that s seems to mean; "" where
// it seems to mean none.
func literalOf(t, s string) string {
	switch t {
	case "int", "uint", "double", "bool":
		if !converts(t, s) {
			return ""
		}
		if _, err := strconv.ParseInt(s, 10, 64); t == "double" && err == nil {
			return s + ".0"
		}
		if t == "uint" {
			return s + "u"
		}
		return s
	case "timestamp":
		for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime} {
			if at, err := time.Parse(layout, s); err == nil {
				return fmt.Sprintf("timestamp(%q)", at.Format(time.RFC3339Nano))
			}
		}
	case "duration":
		if converts(t, s) {
			return fmt.Sprintf("duration(%q)", s)
		}
		for _, layout := range []string{"15:04:05", "15:04"} {
			if at, err := time.Parse(layout, s); err == nil {
				return fmt.Sprintf("duration(%q)", at.Sub(at.Truncate(24*time.Hour)).String())
			}
		}
	}
	return ""
}

// unquoted says that a literal is not text, where it is no call with one in it.
func unquoted(literal string) string {
	if strings.HasSuffix(literal, ")") {
		return ""
	}
	return " without quotes"
}

// conversions are the functions that take a text, by what they make of it.
var conversions = map[string]ref.Type{
	"int": types.IntType, "uint": types.UintType, "double": types.DoubleType, "bool": types.BoolType,
	"timestamp": types.TimestampType, "duration": types.DurationType,
}

// converts reports whether the conversion takes the text.
func converts(t, s string) bool {
	if t == "timestamp" {
		_, err := cell.ParseTime(s)
		return err == nil
	}
	return !types.IsError(types.String(s).ConvertToType(conversions[t]))
}

// checkLiterals refuses at load the conversion of a literal that can never succeed.
func checkLiterals(e pipeline.Expr, checked *cel.Ast) error {
	var found Errors
	rep := checked.NativeRep()
	ast.PreOrderVisit(rep.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() != ast.CallKind || len(callArgs(x)) != 1 {
			return
		}
		name := x.AsCall().FunctionName()
		s, ok := literalText(callArgs(x)[0])
		if !ok || conversions[name] == nil || converts(name, s) {
			return
		}
		message := fmt.Sprintf("%s(%q) can never be converted", name, s)
		switch literal := literalOf(name, s); {
		case literal != "":
			message += ": write " + literal
		case examples[name] != "":
			message += ": write it as in " + examples[name]
		}
		found = append(found, errorAt(e, rep.SourceInfo().GetStartLocation(x.ID()), message))
	}))
	if len(found) > 0 {
		return found
	}
	return nil
}

// DecimalOrders returns where the expression orders a decimal column as text, under which
// "9.50" comes after "10.00", and how to write the column as a number.
func (p *Program) DecimalOrders() (at []pipeline.Pos, number []string) {
	ast.PreOrderVisit(p.root(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || !slices.Contains(orders, e.AsCall().FunctionName()) {
			return
		}
		for _, arg := range e.AsCall().Args() {
			if name, ok := decimalColumn(p.table, arg); ok {
				at, number = append(at, p.pos(leftmost(arg))), append(number, "double("+name+")")
			}
		}
	}))
	return at, number
}

var orders = []string{operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals}
