package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Error is a fault of one expression, at load or at run time. Message holds no data
// of the record.
type Error struct {
	Pos     pipeline.Pos
	Place   string
	Message string
}

// Error says where the fault is and what it is.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Pos, e.Place, e.Message) }

// Errors are all faults of one expression, in its order.
type Errors []*Error

// Error joins the faults, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// errorAt places a fault: within the expression where its text stands in the file as
// it is, at its start otherwise.
func errorAt(e pipeline.Expr, loc common.Location, message string) *Error {
	pos := e.Pos
	if e.Exact && loc != nil && loc.Line() > 0 {
		pos.Line += loc.Line() - 1
		pos.Column += loc.Column()
	}
	return &Error{Pos: pos, Place: e.Place, Message: message}
}

var (
	noOverload = regexp.MustCompile(`^found no matching overload for '(.+)' applied to '(.*)'$`)
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']+)'`)

	reservedName = regexp.MustCompile(`^(?:Syntax error: )?reserved identifier: (\w+)$`)
)

// compileErrors translates what the parser and the checker say into what the reader can
// act on. root is nil where the expression could not be parsed.
func (env *Env) compileErrors(e pipeline.Expr, root ast.Expr, found []*cel.Error) Errors {
	out := make(Errors, 0, len(found))
	if fault := oddName(e); fault != nil {
		return append(out, errorAt(e, fault.at, fault.message))
	}
	for i, f := range found {
		message := env.translate(f, e, root)
		if i == 0 && strings.HasPrefix(message, syntaxError) && syntaxHint(message) == "" {
			message += foreignHint(e.Source)
		}
		out = append(out, errorAt(e, f.Location, message))
	}
	return out
}

// plainTypes turns CEL's names of types into the ones that pipeline.md uses.
func plainTypes(text string) string {
	return strings.NewReplacer("google.protobuf.Timestamp", "timestamp", "google.protobuf.Duration", "duration", "optional_type(", "optional(").Replace(text)
}

func (env *Env) translate(f *cel.Error, e pipeline.Expr, root ast.Expr) string {
	message := plainTypes(f.Message)
	if m := noOverload.FindStringSubmatch(message); m != nil {
		if root != nil {
			if side := env.wrongSide(findNode(root, f.ExprID)); side != "" {
				return side
			}
		}
		c := call{function: m[1], types: splitTypes(m[2]), table: env.table}
		if root != nil {
			c.args = callArgs(findNode(root, f.ExprID))
		}
		return c.message()
	}
	if m := undeclared.FindStringSubmatch(message); m != nil {
		if root != nil {
			if node := findNode(root, f.ExprID); node != nil && node.Kind() == ast.CallKind {
				return env.unknownFunction(m[1])
			}
		}
		return env.undeclaredMessage(m[1], e)
	}
	if m := reservedName.FindStringSubmatch(message); m != nil {
		return env.undeclaredMessage(m[1], e)
	}
	if syntax, ok := strings.CutPrefix(message, "Syntax error: "); ok {
		return syntaxError + syntax + syntaxHint(syntax)
	}
	return message
}

// syntaxError begins the message about a source that cannot be parsed.
const syntaxError = "syntax error: "

// syntaxHint says what is written here for what other languages have.
func syntaxHint(message string) string {
	for _, h := range []struct{ part, hint string }{
		{"at: '= '", " (equality is ==)"}, {"at: '$'", " (a field of the record is event.name)"},
		{"at: '#'", " (text is quoted and joined with +, or by key(…))"},
		{"input 'and'", " (and is &&)"}, {"input 'or'", " (or is ||)"}, {"input 'not'", " (not is !)"},
	} {
		if strings.Contains(message, h.part) {
			return h.hint
		}
	}
	return ""
}

func (env *Env) undeclaredMessage(name string, e pipeline.Expr) string {
	has, field := "mapping", "a field of the record is event"
	isChange := env.table != nil && !env.rows
	switch {
	case env.rows:
		has, field = "scan", "a column of the row is row.FAMILY"
	case isChange:
		has, field = "change stream", "the entries of the change are change.entries"
	}
	switch head, _, _ := strings.Cut(name, "."); {
	case name == "if" && strings.Contains(e.Source, "if("):
		return "there is no if: write CONDITION ? A : B, all of it in single quotes"
	case head == "item":
		return "item is known only inside a " + has + " that has forEach"
	case head == "change" && isChange:
		return "change has the fields rowKey, type, cluster, commitTime, tieBreaker, lowWatermark and entries"
	case head == "message" && env.table == nil:
		return "message has the fields id, publishTime, orderingKey, attributes and subscription"
	}
	if !isChange {
		field += "." + name
	}
	return fmt.Sprintf("%s is neither a variable nor a function here: to mean the text, quote it%s; %s", name, quoted(name, e), field)
}

// splitTypes cuts "(string, map(string, dyn))" or "string.(int)" at its top-level commas.
func splitTypes(s string) []string {
	if recv, args, ok := strings.Cut(s, ".("); ok {
		return append([]string{recv}, splitTypes("("+args)...)
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "("), ")")
	var out []string
	depth, start := 0, 0
	for i, c := range s {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	if rest := strings.TrimSpace(s[start:]); rest != "" {
		out = append(out, rest)
	}
	return out
}

// displayName turns the interpreter's _+_ into + and @in into in.
func displayName(function string) string {
	switch function {
	case "_?_:_":
		return "?:"
	case "_[_]":
		return "[]"
	case "@in":
		return "in"
	case "-_":
		return "-"
	case "!_":
		return "!"
	}
	if op := strings.Trim(function, "_"); strings.HasPrefix(function, "_") && op != "" {
		return op
	}
	return function + "()"
}

// dataFree lists the interpreter's run-time messages that can hold no value of the record.
var dataFree = []string{
	"division by zero", "divide by zero", "modulus by zero", "integer overflow", "unsigned integer overflow",
	"timestamp overflow", "duration overflow", "optional.none() dereference",
	"unsupported key type",
}

// runtimeError makes an Error of what evaluation returned, without the record's data.
func (p *Program) runtimeError(vars *Vars, err error) *Error {
	var loc common.Location
	var node ast.Expr
	var failed *types.Err
	if errors.As(err, &failed) && failed.NodeID() != 0 {
		loc = p.ast.NativeRep().SourceInfo().GetStartLocation(failed.NodeID())
		node = findNode(p.ast.NativeRep().Expr(), failed.NodeID())
	}
	return errorAt(p.src, loc, p.describe(vars, node, err))
}

func (p *Program) describe(vars *Vars, node ast.Expr, err error) string {
	var own *funcError
	if errors.As(err, &own) {
		return own.Error()
	}
	text := err.Error()
	if strings.Contains(text, "actual cost limit exceeded") {
		return errCost.Error()
	}
	if _, key, ok := strings.Cut(text, "no such key: "); ok {
		if strings.Contains(p.src.Source, key) {
			return "no such key: " + key
		}
		return "no such key"
	}
	if strings.Contains(text, "no such overload") {
		return p.overloadAtRunTime(vars, node)
	}
	if strings.Contains(text, "index out of bounds") {
		return "index out of bounds"
	}
	for _, known := range dataFree {
		if strings.Contains(text, known) {
			return known
		}
	}
	if node != nil && node.Kind() == ast.CallKind {
		return displayName(node.AsCall().FunctionName()) + " cannot take this value"
	}
	return "cannot be evaluated on this record"
}

// overloadAtRunTime finds the arguments' types by evaluating each alone: the slow way,
// taken only for a record that fails.
func (p *Program) overloadAtRunTime(vars *Vars, node ast.Expr) string {
	if node == nil || node.Kind() != ast.CallKind {
		return "an operator or function does not take a value of this type"
	}
	c := call{function: node.AsCall().FunctionName(), args: callArgs(node), table: p.table}
	for _, arg := range c.args {
		c.types = append(c.types, p.typeOf(vars, arg))
	}
	return c.message()
}

func findNode(root ast.Expr, id int64) ast.Expr {
	var found ast.Expr
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() == id {
			found = e
		}
	}))
	return found
}
