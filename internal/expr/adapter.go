package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

// adapter gives the interpreter the values of records. A number that a double does not hold
// becomes the nearest double.
type adapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case cell.Inexact:
		return types.Double(v.Double)
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	}
	return a.Adapter.NativeToValue(v)
}

var errInexact = failf("%s", cell.ErrInexact)

// exactly refuses a number if the expression makes a text of it, which would show other
// digits than the record has.
func (p *Program) exactly(vars *Vars) error {
	for _, number := range p.texts {
		if v, ok := number(vars); ok {
			if _, inexact := v.(cell.Inexact); inexact {
				return errInexact
			}
		}
	}
	return nil
}
