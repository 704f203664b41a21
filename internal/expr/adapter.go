package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

// adapter gives the interpreter the values of records: a number that a double does not hold
// is its nearest double to it.
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

// errInexact quotes nothing of the number.
var errInexact = failf("the number has more digits than a double holds, and its text would show others: send it as text")

// exactly refuses a number of which the value, or a text that the expression makes of it,
// would show other digits than the record has.
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
