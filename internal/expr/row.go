package expr

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Cell is the newest version of one column of a row. Qualifier and Value are literal
// bytes, read only.
type Cell struct {
	Qualifier string
	Value     []byte
}

// Row is a row of a table as expressions see it: its key and the newest version of
// each column, decoded as the table declares when an expression asks for them. Qualifiers
// are texts there, as pipeline.NameText has them.
type Row struct {
	Table *pipeline.Table
	Key   string
	// Family calls each with the newest cell of each column of a family; not at all
	// where the row has none of it.
	Family func(name string, each func(Cell))
	// Families are the names of all that the row has cells in.
	Families func() []string

	families map[string]map[string]any
}

// Reset makes r the row of key; what it had decoded is forgotten.
func (r *Row) Reset(key string) {
	r.Key = key
	clear(r.families)
}

const rowVariable = "row"

// identifier is a name that can stand after a dot.
var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// reserved cannot stand after a dot (CEL's language definition, syntax).
var reserved = map[string]bool{"in": true, "true": true, "false": true, "null": true}

func afterDot(name string) bool { return identifier.MatchString(name) && !reserved[name] }

// NewRowEnv returns the vocabulary of a scan's emit: rowKey and row, typed by what the
// table declares, and item where there is forEach. An undeclared family is an error at
// load; an undeclared column is bytes.
func NewRowEnv(t *pipeline.Table, withItem bool) (*Env, error) {
	vars := []cel.EnvOption{cel.Variable("rowKey", celType(t.Key.Kind))}
	columns := cel.MapType(cel.StringType, cel.DynType)
	for _, f := range t.Families {
		if !afterDot(f.Name) {
			continue
		}
		vars = append(vars, cel.Variable(rowVariable+"."+f.Name, columns))
		for _, c := range f.Columns {
			if afterDot(c.Qualifier) {
				vars = append(vars, cel.Variable(rowVariable+"."+f.Name+"."+c.Qualifier, celType(f.Encoding(c.Qualifier).Kind)))
			}
		}
	}
	vars = append(vars, cel.Variable(rowVariable, cel.MapType(cel.StringType, columns)))
	if withItem {
		vars = append(vars, cel.Variable("item", cel.DynType))
	}
	env, err := newEnv(vars)
	if err != nil {
		return nil, err
	}
	env.table, env.rows = t, true
	return env, nil
}

// celType is the type of what cell.Encoding.Decode returns.
func celType(k cell.Kind) *cel.Type {
	switch k {
	case cell.String, cell.Decimal:
		return cel.StringType
	case cell.Bool:
		return cel.BoolType
	case cell.Int8, cell.Int16, cell.Int32, cell.Int64:
		return cel.IntType
	case cell.Float32, cell.Float64:
		return cel.DoubleType
	case cell.Date, cell.Timestamp:
		return cel.TimestampType
	case cell.Time:
		return cel.DurationType
	case cell.JSON:
		return cel.DynType
	}
	return cel.BytesType
}

// checkFamilies refuses the families that the table does not declare.
func checkFamilies(e pipeline.Expr, t *pipeline.Table, a *ast.AST) error {
	var faults Errors
	ast.PreOrderVisit(a.Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		name, ok := familyOf(node)
		if !ok || t.Family(name) != nil {
			return
		}
		message := fmt.Sprintf("table %s declares no family %s", t.Name, name)
		var names []string
		for _, f := range t.Families {
			names = append(names, f.Name)
		}
		if near := pipeline.Nearest(name, names); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		faults = append(faults, errorAt(e, a.SourceInfo().GetStartLocation(node.ID()), message))
	}))
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// familyOf returns the family that row.F, row.?F or row["F"] names.
func familyOf(e ast.Expr) (string, bool) {
	isRow := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == rowVariable }
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().FieldName(), isRow(e.AsSelect().Operand())
	case ast.CallKind:
		args := e.AsCall().Args()
		if len(args) != 2 || !isRow(args[0]) || args[1].Kind() != ast.LiteralKind {
			return "", false
		}
		name, ok := args[1].AsLiteral().Value().(string)
		return name, ok
	}
	return "", false
}

// splitColumn reads row.F.Q.
func splitColumn(name string) (family, qualifier string, ok bool) {
	rest, isRow := strings.CutPrefix(name, rowVariable+".")
	family, qualifier, ok = strings.Cut(rest, ".")
	return family, qualifier, ok && isRow
}

// resolve returns the value of a variable, or a *types.Err.
func (r *Row) resolve(name string) (any, bool) {
	if name == "rowKey" {
		return r.key(), true
	}
	rest, ok := strings.CutPrefix(name, rowVariable)
	switch {
	case !ok:
		return nil, false
	case rest == "":
		return r.all(), true
	case rest[0] != '.':
		return nil, false
	}
	family, qualifier, isColumn := strings.Cut(rest[1:], ".")
	if !isColumn {
		return r.family(family), true
	}
	v, there := r.family(family)[qualifier]
	if !there {
		return types.NewErr("no such key: %s", qualifier), true
	}
	return v, true
}

// key decodes the row key. One that other bytes stand for too is an error: two rows
// must never become one.
func (r *Row) key() any {
	v, err := DecodeKey(r.Table.Key, r.Key)
	if err != nil {
		return types.WrapErr(&funcError{"the row key: " + err.Error()})
	}
	return v
}

// DecodeKey returns a row key's value in its declared encoding. The error says why it
// has none that no other key has; it quotes nothing.
func DecodeKey(e cell.Encoding, key string) (any, error) {
	if e.Kind == cell.String {
		// No key is a null, whatever text stands for one in a column.
		v, err := e.Decode([]byte(key), "")
		if err != nil {
			return nil, fmt.Errorf("it is not UTF-8 text, as %s must be", e)
		}
		return v, nil
	}
	v, err := e.Decode([]byte(key), "")
	if err != nil {
		return nil, fmt.Errorf("its %d bytes are no %s", len(key), e)
	}
	if e.Kind == cell.Bytes {
		return v, nil
	}
	if back, err := e.Append(nil, v, ""); err != nil || !bytes.Equal(back, []byte(key)) {
		return nil, fmt.Errorf("its %d bytes are not how a %s is written", len(key), e)
	}
	return v, nil
}

// family decodes the columns of a family: a value for each, or an error.
func (r *Row) family(name string) map[string]any {
	if columns, ok := r.families[name]; ok {
		return columns
	}
	f := r.Table.Family(name)
	columns := map[string]any{}
	r.Family(name, func(c Cell) {
		columns[pipeline.NameText(c.Qualifier)] = r.decode(f, c)
	})
	if r.families == nil {
		r.families = map[string]map[string]any{}
	}
	r.families[name] = columns
	return columns
}

func (r *Row) decode(f *pipeline.Family, c Cell) any {
	v, err := DecodeCell(r.Table, f, c)
	if err != nil {
		return types.WrapErr(&funcError{err.Error()})
	}
	return v
}

// DecodeCell returns a cell's value in its declared encoding; f is nil for a family
// that is not declared. The error names the cell, which then is a declared one.
func DecodeCell(t *pipeline.Table, f *pipeline.Family, c Cell) (any, error) {
	if f == nil {
		return c.Value, nil
	}
	v, err := f.Encoding(c.Qualifier).Decode(c.Value, t.NullString)
	if err != nil {
		return nil, fmt.Errorf("%s:%s: %w", f.Name, printable(f, c.Qualifier), err)
	}
	return v, nil
}

// printable is a declared qualifier as it may be told: an undeclared one is data.
func printable(f *pipeline.Family, qualifier string) string {
	for _, c := range f.Columns {
		if c.Qualifier == qualifier {
			return fmt.Sprintf("%q", qualifier)
		}
	}
	return fmt.Sprintf("(a qualifier of %d bytes)", len(qualifier))
}

func (r *Row) all() map[string]any {
	all := map[string]any{}
	for _, f := range r.Table.Families {
		all[f.Name] = r.family(f.Name)
	}
	for _, name := range r.Families() {
		all[name] = r.family(name)
	}
	return all
}

// fastVariable is fastIdent for the vocabularies of rows and changes.
func fastVariable(name string) fastFunc {
	return func(v *Vars) (any, bool) {
		if v.Row == nil && v.Change == nil {
			return nil, false
		}
		value, ok := v.ResolveName(name)
		_, failed := value.(*types.Err)
		return value, ok && !failed
	}
}
