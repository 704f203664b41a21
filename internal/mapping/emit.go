package mapping

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// Emit makes output records of the rows of a scan. It is safe for concurrent use.
type Emit struct {
	template
	table    *pipeline.Table
	keysOnly bool
	columns  map[string]*columnInfo
}

// Output is one record of a row or a change.
type Output struct {
	// Index counts the records of the row or change where there is `forEach`; -1 elsewhere.
	Index int
	// Body is a JSON object.
	Body []byte
	// OrderingKey is a hash of what orderBy says; empty where it says nothing.
	OrderingKey string
	Attributes  map[string]string // read only; records may share them
}

// OutputError is why no record can be made of a row or a change. It quotes nothing of it.
type OutputError struct {
	Place string // in the pipeline file; empty: of the row or change itself
	Err   error
}

// Error implements error.
func (e *OutputError) Error() string {
	if e.Place == "" {
		return e.Err.Error()
	}
	return e.Place + ": " + e.Err.Error()
}

// Unwrap returns a *retry.Rejected, which wraps the reason.
func (e *OutputError) Unwrap() error { return &retry.Rejected{Err: e.Err} }

// CompileEmit compiles what a scan makes of a row. Its error joins all faults, each
// with file, line and column.
func CompileEmit(s *pipeline.Scan) (*Emit, error) {
	vocabulary := func(withItem bool) (*expr.Env, error) { return expr.NewRowEnv(s.Table, withItem) }
	t, err := compileTemplate(s.Emit, s.To.PubSub, vocabulary)
	if err != nil {
		return nil, err
	}
	return &Emit{template: t, table: s.Table, keysOnly: s.Cells.KeysOnly, columns: declaredColumns(s.Table)}, nil
}

// Plain reports whether a record is its body and Attributes, and a row makes one at most.
func (e *Emit) Plain() bool { return e.forEach == nil && e.orderBy == nil && e.fixed != nil }

// outputError returns nil for nil.
func outputError(err error) error {
	switch err := err.(type) {
	case nil:
		return nil
	case *expr.Error:
		return &OutputError{Place: err.Place, Err: fmt.Errorf("%s", err.Message)}
	case *placedError:
		return &OutputError{Place: err.place, Err: err.err}
	}
	return &OutputError{Err: err}
}

// orderingKey is short whatever the key's length: Pub/Sub takes 1,024 bytes.
func orderingKey(v any) string {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case []byte:
		text = string(v)
	case time.Time:
		text = v.UTC().Format(time.RFC3339Nano)
	default:
		text = fmt.Sprint(v)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// KeyRecord is the record of a row of which nothing but the key can be told.
func KeyRecord(t *pipeline.Table, key string) []byte {
	return append(appendKey([]byte(`{"rowKey":`), t.Key, key), '}')
}
