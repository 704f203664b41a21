package mapping

import (
	"errors"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// mapping is a pipeline.Mapping with its expressions compiled.
type mapping struct {
	src       *pipeline.Mapping
	ref       pipeline.TableRef // of a literal table
	when      *expr.Program
	forEach   *expr.Program
	idFrom    *expr.Program
	rowKey    *expr.Program
	timestamp *expr.Program
	dedupeID  *expr.Program
	mutations []mutation
}

type mutation struct {
	src      *pipeline.Mutation
	when     *expr.Program
	from, to *expr.Program
	cells    []cellValue
	columns  []column
}

type cellValue struct {
	family    string
	qualifier []byte
	encoding  cell.Encoding
	value     *expr.Program
}

type column struct {
	family    string
	qualifier []byte
	encoding  cell.Encoding
}

// compiler collects the faults of all expressions.
type compiler struct {
	env    *expr.Env
	limits Limits
	errs   []error
}

func (c *compiler) err() error { return errors.Join(c.errs...) }

// compile returns nil where the file has no expression.
func (c *compiler) compile(e pipeline.Expr, want expr.Want) *expr.Program {
	if e.IsZero() {
		return nil
	}
	p, err := c.env.Compile(e, want)
	if err != nil {
		c.errs = append(c.errs, err)
	}
	return p
}

func (c *compiler) mapping(m *pipeline.Mapping, when, forEach *expr.Program) *mapping {
	t := m.Table
	out := &mapping{
		src: m, when: when, forEach: forEach,
		ref:       t.Ref(),
		idFrom:    c.compile(t.IDFrom, expr.Text),
		rowKey:    c.compile(m.RowKey, expr.Key),
		timestamp: c.compile(m.Timestamp, expr.Timestamp),
		dedupeID:  c.compile(m.DedupeID, expr.Key),
	}
	c.tableFits(out.idFrom, t)
	c.keyFits(out.rowKey, t.Key)
	c.timeFits(out.timestamp)
	c.dedupeFits(out.dedupeID)
	for _, mu := range m.Mutations {
		compiled := mutation{src: mu, when: c.compile(mu.When, expr.Bool), from: c.compile(mu.From, expr.Timestamp), to: c.compile(mu.To, expr.Timestamp)}
		c.timeFits(compiled.from)
		c.timeFits(compiled.to)
		for _, a := range mu.Cells {
			value := cellValue{a.Family.Name, []byte(a.Qualifier), a.Encoding, c.compile(a.Value, expr.Anything)}
			c.cellFits(mu.Kind, t, value)
			compiled.cells = append(compiled.cells, value)
		}
		for _, col := range mu.Columns {
			compiled.columns = append(compiled.columns, column{col.Family.Name, []byte(col.Qualifier), col.Family.Encoding(col.Qualifier)})
		}
		out.mutations = append(out.mutations, compiled)
	}
	return out
}
