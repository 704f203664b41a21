// Package expr guarantees that an expression of the pipeline file either fails to
// load, with its line and column and what to write instead, or evaluates within a
// cost limit to a value of the type its place asks for. An error at run time quotes
// nothing but the pipeline file: never a value of the record.
package expr

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// maxNesting bounds an expression's parse, so that a hostile file cannot exhaust the stack.
const maxNesting = 100

// Want is the type that a place in the file asks of its expression.
type Want int

// What a place can ask for. Anything takes every type, an optional and a null included.
const (
	Anything Want = iota
	Bool
	Text
	Timestamp
	List
	Key       // what can be a row key: text, bytes, or a number under a numeric key encoding
	Attribute // text too: it is all that an attribute of Pub/Sub can be
)

// Env is the vocabulary that expressions of one kind of place share.
type Env struct {
	cel   *cel.Env
	table *pipeline.Table // of rows and changes; nil for records
	rows  bool            // it has the variable row
	costs costs
}

// NewRecordEnv returns the vocabulary of write: event, message and raw, and item
// inside a mapping that has forEach.
func NewRecordEnv(withItem bool) (*Env, error) {
	vars := []cel.EnvOption{
		cel.Variable("event", cel.DynType),
		cel.Variable("raw", cel.BytesType),
		cel.Variable("message.id", cel.StringType),
		cel.Variable("message.publishTime", cel.TimestampType),
		cel.Variable("message.orderingKey", cel.StringType),
		cel.Variable("message.attributes", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("message.subscription", cel.StringType),
	}
	if withItem {
		vars = append(vars, cel.Variable("item", cel.DynType))
	}
	return newEnv(vars)
}

func newEnv(vars []cel.EnvOption) (*Env, error) {
	known := &patterns{}
	costs := newCosts(known)
	texts, err := stringFunctions(costs)
	if err != nil {
		return nil, err
	}
	opts := append(vars,
		cel.StdLib(cel.StdLibSubset(&env.LibrarySubset{ExcludeFunctions: []*env.Function{{Name: overloads.Matches}}})),
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserRecursionLimit(maxNesting),
		cel.DefaultUTCTimeZone(true),
		ext.Math(), ext.Encoders(),
		known.matches(),
		cel.CustomTypeAdapter(adapter{types.DefaultTypeAdapter}),
	)
	opts = append(opts, texts...)
	opts = append(opts, functions()...)
	opts = append(opts, conversionFunctions()...)
	env, err := cel.NewCustomEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("building the expression environment: %w", err)
	}
	return &Env{cel: env, costs: costs}, nil
}

// Program is a compiled expression, safe for concurrent use.
type Program struct {
	src   pipeline.Expr
	want  Want
	env   *cel.Env
	costs costs
	table *pipeline.Table // whose rows or changes it sees; nil for records
	ast   *cel.Ast
	prog  cel.Program
	fast  fastFunc   // nil where the expression has no fast form
	texts []fastFunc // the arguments of string() that have a fast form
}

// Compile parses and type-checks e. Its error is an Errors that names file, line,
// column and place.
func (env *Env) Compile(e pipeline.Expr, want Want) (*Program, error) {
	parsed, issues := env.cel.Parse(e.Source)
	if issues.Err() != nil {
		return nil, env.compileErrors(e, nil, issues.Errors())
	}
	checked, issues := env.cel.Check(parsed)
	if issues.Err() != nil {
		return nil, env.compileErrors(e, parsed.NativeRep().Expr(), issues.Errors())
	}
	if env.rows {
		if err := checkFamilies(e, env.table, checked.NativeRep()); err != nil {
			return nil, err
		}
	}
	if err := checkCalls(e, checked); err != nil {
		return nil, err
	}
	if err := checkLiterals(e, checked); err != nil {
		return nil, err
	}
	if err := want.check(e, checked.OutputType()); err != nil {
		return nil, err
	}
	prog, err := env.cel.Program(checked, cel.CostLimit(costLimit), cel.CostTracking(env.costs))
	if err != nil {
		return nil, Errors{errorAt(e, nil, fmt.Sprintf("planning the expression: %v", err))}
	}
	return &Program{src: e, want: want, env: env.cel, costs: env.costs, table: env.table, ast: checked, prog: prog, fast: compileFast(checked.NativeRep().Expr()), texts: madeText(checked.NativeRep().Expr())}, nil
}

// madeText returns those arguments of string() in an expression that have a fast form, as
// fields of the record have.
func madeText(root ast.Expr) []fastFunc {
	var out []fastFunc
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == overloads.TypeConvertString && len(e.AsCall().Args()) == 1 {
			if f := compileFast(e.AsCall().Args()[0]); f != nil {
				out = append(out, f)
			}
		}
	}))
	return out
}

// Source returns the expression as it stands in the file.
func (p *Program) Source() pipeline.Expr { return p.src }

// check holds the static type against what the place asks for; dyn is checked when
// the value is there.
func (w Want) check(e pipeline.Expr, t *cel.Type) error {
	if w == Anything {
		return writable(e, t)
	}
	if t.Kind() == cel.DynKind {
		return nil
	}
	if isOptional(t) {
		return Errors{errorAt(e, nil, "is optional, and this place needs a value: add .orValue(…)")}
	}
	ok := false
	switch w {
	case Bool:
		ok = t.Kind() == cel.BoolKind
	case Text, Attribute:
		ok = t.Kind() == cel.StringKind
	case Timestamp:
		ok = t.Kind() == cel.TimestampKind
	case List:
		ok = t.Kind() == cel.ListKind
	case Key:
		switch t.Kind() {
		case cel.StringKind, cel.BytesKind, cel.IntKind, cel.UintKind, cel.DoubleKind, cel.BoolKind, cel.TimestampKind:
			ok = true
		}
	}
	if ok {
		return nil
	}
	name := plainTypes(t.String())
	return Errors{errorAt(e, nil, fmt.Sprintf("is of type %s, and this place takes %s%s", name, w, w.hint(name)))}
}

// writable refuses a type of which Eval returns no value.
func writable(e pipeline.Expr, t *cel.Type) error {
	t = held(t)
	switch {
	case t.Kind() == cel.TypeKind:
		return Errors{errorAt(e, nil, "is a type, and this place takes a value: compare it, as in type(event.a) == string")}
	case t.Kind() == cel.MapKind && len(t.Parameters()) == 2:
		if key := t.Parameters()[0].Kind(); key != cel.StringKind && key != cel.DynKind {
			return Errors{errorAt(e, nil, fmt.Sprintf("is a map with keys of type %s, and the keys of a JSON object are text: quote them", plainTypes(t.Parameters()[0].String())))}
		}
	}
	return nil
}

// String names the type as error messages do.
func (w Want) String() string {
	switch w {
	case Bool:
		return "a bool"
	case Text:
		return "text"
	case Timestamp:
		return "a timestamp"
	case List:
		return "a list"
	case Key:
		return "text or another scalar"
	case Attribute:
		return "text, which is all that an attribute of Pub/Sub can be"
	}
	return "any value"
}

// hint says how to convert from the CEL type named.
func (w Want) hint(from string) string {
	switch {
	case (w == Text || w == Attribute) && (from == "int" || from == "uint" || from == "double" || from == "bool" || from == "timestamp"):
		return ": convert with string(…)"
	case w == Timestamp && from == "string":
		return ": convert with timestamp(…)"
	case w == Bool:
		return ": compare it with something, as in event.a == true"
	}
	return ""
}
