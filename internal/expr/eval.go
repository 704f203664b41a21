package expr

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

// Absent is the value of optional.none(): there is nothing to write.
type Absent struct{}

// Eval returns the expression's value as nil, bool, int64, uint64, float64, cell.Inexact,
// string, []byte, time.Time, time.Duration, []any, map[string]any or Absent, of the type
// that the expression was compiled for. Its error is an *Error.
func (p *Program) Eval(vars *Vars) (any, error) {
	v, err := p.eval(vars)
	if err != nil {
		return nil, p.runtimeError(vars, err)
	}
	if _, inexact := v.(cell.Inexact); inexact && p.want != Anything {
		return nil, errorAt(p.src, nil, errInexact.Error())
	}
	if p.want != Anything && !p.want.holds(v) {
		return nil, errorAt(p.src, nil, fmt.Sprintf("is %s, and this place takes %s%s", typeName(v), p.want, p.want.hint(typeName(v))))
	}
	return v, nil
}

// Holds evaluates a condition.
func (p *Program) Holds(vars *Vars) (bool, error) {
	v, err := p.Eval(vars)
	if err != nil {
		return false, err
	}
	return v.(bool), nil
}

func (p *Program) eval(vars *Vars) (any, error) {
	if p.fast != nil {
		if v, ok := p.fast(vars); ok {
			return v, nil
		}
	}
	if err := p.exactly(vars); err != nil {
		return nil, err
	}
	v, _, err := p.prog.Eval(vars)
	if err != nil {
		return nil, err
	}
	out, err := native(v)
	if err == nil && p.table != nil {
		err = broken(out)
	}
	return out, err
}

// broken returns why a cell within a family, or a row, that is a value as it is cannot be
// decoded: nobody has asked for the cell alone.
func broken(v any) error {
	switch v := v.(type) {
	case *types.Err:
		return v
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := broken(v[name]); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := broken(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w Want) holds(v any) bool {
	switch v.(type) {
	case bool:
		return w == Bool || w == Key
	case string:
		return w == Text || w == Key || w == Attribute
	case time.Time:
		return w == Timestamp || w == Key
	case []any:
		return w == List
	case int64, uint64, float64, []byte:
		return w == Key
	}
	return false
}

// maxNodes bounds the lists and maps that one value may be made of: parts may be shared
// in the interpreter and are not in the result.
const maxNodes = 1 << 20

// native turns the interpreter's value into a Go value.
func native(v ref.Val) (any, error) {
	left := maxNodes
	return nativeValue(v, &left)
}

func nativeValue(v ref.Val, left *int) (any, error) {
	if *left--; *left < 0 {
		return nil, failf("a value of more than %d parts", maxNodes)
	}
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Int:
		return int64(v), nil
	case types.Bool:
		return bool(v), nil
	case types.Bytes:
		return []byte(v), nil
	case types.Double:
		return float64(v), nil
	case types.Uint:
		return uint64(v), nil
	case types.Timestamp:
		return v.Time, nil
	case types.Duration:
		return v.Duration, nil
	case types.Null:
		return nil, nil
	case *types.Err:
		return nil, v
	case *types.Optional:
		if !v.HasValue() {
			return Absent{}, nil
		}
		return nativeValue(v.GetValue(), left)
	case traits.Lister:
		return nativeList(v, left)
	case traits.Mapper:
		return nativeMap(v, left)
	}
	return nil, failf("a value of type %s cannot be written", v.Type().TypeName())
}

func nativeList(l traits.Lister, left *int) (any, error) {
	if list, ok := l.Value().([]any); ok && isJSON(list, left) {
		return list, nil
	}
	out := []any{}
	for it := l.Iterator(); it.HasNext() == types.True; {
		e, err := nativeValue(it.Next(), left)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// isJSON reports whether a list is one of the record's own: made of decoded JSON alone.
func isJSON(v any, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	switch v := v.(type) {
	case nil, bool, int64, uint64, float64, cell.Inexact, string, map[string]any:
		return true
	case []any:
		for _, e := range v {
			if !isJSON(e, left) {
				return false
			}
		}
		return true
	}
	return false
}

func nativeMap(m traits.Mapper, left *int) (any, error) {
	if object, ok := m.Value().(map[string]any); ok {
		return object, nil
	}
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		name, ok := k.(types.String)
		if !ok {
			return nil, failf("a map with a key of type %s is no JSON object", k.Type().TypeName())
		}
		e, err := nativeValue(m.Get(k), left)
		if err != nil {
			return nil, err
		}
		out[string(name)] = e
	}
	return out, nil
}

// typeName is cell.TypeName, of what Eval returns.
func typeName(v any) string {
	if _, ok := v.(Absent); ok {
		return "absent"
	}
	return cell.TypeName(v)
}

// typeOf evaluates one part of the expression to name its type.
func (p *Program) typeOf(vars *Vars, e ast.Expr) string {
	part := ast.NewCheckedAST(ast.NewAST(e, p.ast.NativeRep().SourceInfo()), p.ast.NativeRep().TypeMap(), p.ast.NativeRep().ReferenceMap())
	prog, err := p.env.PlanProgram(part, cel.CostLimit(costLimit), cel.CostTracking(p.costs))
	if err != nil {
		return "dyn"
	}
	v, _, err := prog.Eval(vars)
	if err != nil {
		return "dyn"
	}
	out, err := native(v)
	if err != nil {
		return v.Type().TypeName()
	}
	return typeName(out)
}
