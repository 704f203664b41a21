package mapping

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// An expression is held against the place that its value goes to before there is a record,
// by the same functions that write the value: with its type, or, if it is constant, with the
// value itself. An expression that is refused here would fail with every record.

// fits refuses an expression none of whose values write can take.
func (c *compiler) fits(p *expr.Program, write func(v any) error) {
	if p == nil {
		return
	}
	sample, known := p.Sample()
	if !known {
		return
	}
	var err error
	if p.IsConstant() {
		v, failed := p.Eval(&expr.Vars{})
		if _, absent := v.(expr.Absent); failed == nil && !absent {
			err = write(v)
		}
	} else if err = write(sample); !isTypeError(err) {
		err = nil // it is the sample's own value that is at fault
	}
	if err == nil {
		return
	}
	src := p.Source()
	c.errs = append(c.errs, &FitError{&pipeline.Error{Pos: src.Pos, Place: src.Place, Message: "no record can be written: " + err.Error()}})
}

// FitError says that the place an expression's value goes to takes none of its values. It
// means nothing if the file's text about that place is itself at fault.
type FitError struct{ Fault *pipeline.Error }

// Error returns file:line:column: place: message.
func (e *FitError) Error() string { return e.Fault.Error() }

func isTypeError(err error) bool {
	var mismatched *cell.TypeError
	var refused *inputError
	return errors.As(err, &mismatched) || errors.As(err, &refused)
}

// inputError says that a place other than a column takes no value of a type.
type inputError struct{ text string }

func (e *inputError) Error() string { return e.text }

// cellFits holds a cell's value against its column or, in an aggregate family, against
// the type that add or merge takes.
func (c *compiler) cellFits(kind pipeline.MutationKind, table *pipeline.Table, cell cellValue) {
	switch kind {
	case pipeline.Set:
		c.fits(cell.value, func(v any) error {
			_, err := cell.encoding.Append(nil, v, table.NullString)
			return err
		})
	case pipeline.Add:
		c.fits(cell.value, func(v any) error { _, err := addend(v); return err })
	case pipeline.Merge:
		c.fits(cell.value, func(v any) error { _, err := accumulator(v); return err })
	}
}

// keyFits holds the row key against the table's encoding. That includes the length that a
// key may have.
func (c *compiler) keyFits(p *expr.Program, e cell.Encoding) {
	c.fits(p, func(v any) error {
		key, err := e.Append(nil, v, "")
		if err != nil {
			return err
		}
		return c.limits.checkKey(key)
	})
}

// dedupeFits refuses a dedupeId that no record can have.
func (c *compiler) dedupeFits(p *expr.Program) {
	c.fits(p, func(v any) error { _, err := identifier(v); return err })
}

// timeFits refuses a constant time that no cell can have.
func (c *compiler) timeFits(p *expr.Program) {
	c.fits(p, func(v any) error {
		t, ok := v.(time.Time)
		if !ok {
			return nil // Compile has refused it
		}
		_, err := recordTime(t)
		return err
	})
}

// tableFits refuses a constant table id that idMatches does not take.
func (c *compiler) tableFits(p *expr.Program, t *pipeline.Table) {
	c.fits(p, func(v any) error {
		id, ok := v.(string)
		if !ok || t.IDMatches == nil {
			return nil // Compile or Parse has refused it
		}
		return checkID(t, id)
	})
}

// checkID refuses a computed table id that the file does not allow.
func checkID(t *pipeline.Table, id string) error {
	if t.IDMatches.MatchString(id) {
		return nil
	}
	return errors.New("the computed table id does not match idMatches")
}

// identifier returns a dedupeId as text.
func identifier(v any) (string, error) {
	switch v := v.(type) {
	case string:
		if v == "" {
			return "", errors.New("an empty dedupeId: two different records would count as one")
		}
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	}
	return "", &inputError{fmt.Sprintf("a dedupeId is text or an integer, not %s: convert with string(…)", cell.TypeName(v))}
}

// addend returns v as the number that add takes.
func addend(v any) (int64, error) {
	if n, ok := v.(int64); ok {
		return n, nil
	}
	return 0, &inputError{fmt.Sprintf("add takes an int, not %s: convert with int(…)", cell.TypeName(v))}
}

// accumulator returns v as the bytes that merge takes.
func accumulator(v any) ([]byte, error) {
	if b, ok := v.([]byte); ok {
		return b, nil
	}
	return nil, &inputError{fmt.Sprintf("merge takes an accumulator of type bytes, not %s", cell.TypeName(v))}
}
