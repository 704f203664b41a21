package expr

import (
	"time"

	"cel.dev/cel-go/cel"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Change is a change of one row as expressions see it. Its entries are made when an
// expression asks for them.
type Change struct {
	Row  Row // its Table and Key; a change has no columns
	Type string
	// Cluster is empty of a change by garbage collection.
	Cluster                  string
	CommitTime, LowWatermark time.Time
	TieBreaker               int32
	// Entries returns the entries, each a map[string]any.
	Entries func() []any

	entries []any
	made    bool
}

// Reset makes c another change of the same table, whose other fields the caller sets.
func (c *Change) Reset(key string) {
	c.Row.Key, c.entries, c.made = key, nil, false
}

// changeVariables are the names that changes have beside rowKey, with their types.
func changeVariables(t *pipeline.Table) map[string]*cel.Type {
	return map[string]*cel.Type{
		"change.rowKey":       celType(t.Key.Kind),
		"change.type":         cel.StringType,
		"change.cluster":      cel.StringType,
		"change.commitTime":   cel.TimestampType,
		"change.tieBreaker":   cel.IntType,
		"change.lowWatermark": cel.TimestampType,
		"change.entries":      cel.ListType(cel.MapType(cel.StringType, cel.DynType)),
	}
}

// NewChangeEnv returns the vocabulary of the emit of a change stream: rowKey and change, the
// key typed as the table declares it, and item where there is forEach.
func NewChangeEnv(t *pipeline.Table, withItem bool) (*Env, error) {
	vars := []cel.EnvOption{cel.Variable("rowKey", celType(t.Key.Kind))}
	for name, of := range changeVariables(t) {
		vars = append(vars, cel.Variable(name, of))
	}
	if withItem {
		vars = append(vars, cel.Variable("item", cel.DynType))
	}
	env, err := newEnv(vars)
	if err != nil {
		return nil, err
	}
	env.table = t
	return env, nil
}

// resolve returns the value of a variable, or a *types.Err.
func (c *Change) resolve(name string) (any, bool) {
	switch name {
	case "rowKey", "change.rowKey":
		return c.Row.key(), true
	case "change.type":
		return c.Type, true
	case "change.cluster":
		return c.Cluster, true
	case "change.commitTime":
		return c.CommitTime, true
	case "change.tieBreaker":
		return int64(c.TieBreaker), true
	case "change.lowWatermark":
		return c.LowWatermark, true
	case "change.entries":
		if !c.made {
			c.entries, c.made = c.Entries(), true
		}
		return c.entries, true
	}
	return nil, false
}
