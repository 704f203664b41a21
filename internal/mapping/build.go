package mapping

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// builder makes the rows of one message.
type builder struct {
	w      *Write
	vars   expr.Vars
	now    time.Time
	result *Result
	open   map[rowID]*Row // the newest row of each key, to merge into
	made   []made         // of the record and mapping at hand; reused
}

type rowID struct {
	table pipeline.TableRef
	key   string
	last  bool
}

// made is a row before it is merged.
type made struct {
	table     pipeline.TableRef
	key       []byte
	mutations []*bigtablepb.Mutation
	bytes     int // at least the serialized size
	token     []byte
}

func (b *builder) record(i int, r *record.Record) {
	if r.Err != nil {
		b.result.Rejected = append(b.result.Rejected, &Rejection{Record: i, Err: r.Err})
		return
	}
	b.vars.Event, b.vars.Raw, b.vars.Item = r.Value, r.Raw, nil
	if b.w.skip != nil {
		skip, err := b.w.skip.Holds(&b.vars)
		if err != nil {
			b.result.Rejected = append(b.result.Rejected, reject(i, nil, err))
			return
		}
		if skip {
			b.result.Skipped++
			return
		}
	}
	if r.Entry != nil {
		b.entry(i, r)
		return
	}
	matched := false
	for _, m := range b.w.mappings {
		b.vars.Item = nil
		took, err := b.apply(i, m)
		matched = matched || took
		if err != nil {
			b.result.Rejected = append(b.result.Rejected, reject(i, m, err))
		}
	}
	if !matched {
		b.result.Unmatched = append(b.result.Unmatched, i)
	}
}

// reject makes a rejection whose place is relative to the mapping.
func reject(i int, m *mapping, err error) *Rejection {
	r := &Rejection{Record: i, Err: err}
	var at *expr.Error
	if errors.As(err, &at) {
		r.Place, r.Err = at.Place, errors.New(at.Message)
	}
	var placed *placedError
	if errors.As(err, &placed) {
		r.Place, r.Err = placed.place, placed.err
	}
	if m != nil {
		r.Mapping = m.src.Name
		r.Place = strings.TrimPrefix(r.Place, fmt.Sprintf("write.mappings[%d].", m.src.Index))
	} else {
		r.Place = strings.TrimPrefix(r.Place, "write.")
	}
	return r
}

// placedError is a failure at a place of the file, which is an expression's.
type placedError struct {
	place string
	err   error
}

func (e *placedError) Error() string { return e.place + ": " + e.err.Error() }

func at(p *expr.Program, err error) error { return &placedError{p.Source().Place, err} }

// apply makes all rows of one record and mapping, or none. It reports whether the
// mapping took the record; one that fails has taken it.
func (b *builder) apply(i int, m *mapping) (bool, error) {
	if m.when != nil {
		takes, err := m.when.Holds(&b.vars)
		if err != nil || !takes {
			return err != nil, err
		}
	}
	b.made = b.made[:0]
	if m.forEach == nil {
		if err := b.row(m); err != nil {
			return true, err
		}
	} else if err := b.each(m); err != nil {
		return true, err
	}
	for k := range b.made {
		b.merge(i, m, &b.made[k])
	}
	return true, nil
}

func (b *builder) each(m *mapping) error {
	items, err := m.forEach.Eval(&b.vars)
	if err != nil {
		return err
	}
	for _, item := range items.([]any) {
		b.vars.Item = item
		if err := b.row(m); err != nil {
			return err
		}
	}
	return nil
}

// row makes one row of the variables at hand.
func (b *builder) row(m *mapping) error {
	table, err := b.table(m)
	if err != nil {
		return err
	}
	key, err := b.key(m)
	if err != nil {
		return err
	}
	micros, err := b.time(m)
	if err != nil {
		return err
	}
	r := made{table: table, key: key, bytes: len(key)}
	if r.token, err = b.token(m, table, key); err != nil {
		return err
	}
	if err := b.mutations(m, micros, &r); err != nil {
		return err
	}
	if len(r.mutations) == 0 {
		return &placedError{"mutations", errors.New("no mutation is left to apply")}
	}
	if m.src.Dedupe == pipeline.DedupeMarker {
		r.add(setCell(m.src.MarkerFamily.Name, r.token, b.now.UnixMilli()*1000, nil))
	}
	if err := b.w.limits.check(&r); err != nil {
		return &placedError{"mutations", err}
	}
	b.made = append(b.made, r)
	return nil
}

func (b *builder) table(m *mapping) (pipeline.TableRef, error) {
	if m.idFrom == nil {
		return m.ref, nil
	}
	id, err := m.idFrom.Eval(&b.vars)
	if err != nil {
		return m.ref, err
	}
	if !m.src.Table.IDMatches.MatchString(id.(string)) {
		return m.ref, at(m.idFrom, errors.New("the computed table id does not match idMatches"))
	}
	ref := m.ref
	ref.Table = id.(string)
	return ref, nil
}

func (b *builder) key(m *mapping) ([]byte, error) {
	v, err := m.rowKey.Eval(&b.vars)
	if err != nil {
		return nil, err
	}
	key, err := m.src.Table.Key.Append(nil, v, "")
	if err != nil {
		return nil, at(m.rowKey, err)
	}
	if len(key) == 0 || len(key) > b.w.limits.KeyBytes {
		return nil, at(m.rowKey, fmt.Errorf("a row key of %d bytes; Bigtable takes 1 to %d", len(key), b.w.limits.KeyBytes))
	}
	return key, nil
}

// time returns the record's time in microseconds, a whole number of milliseconds.
func (b *builder) time(m *mapping) (int64, error) {
	if m.timestamp == nil {
		return b.vars.Message.PublishTime.UnixMilli() * 1000, nil
	}
	return b.micros(m.timestamp)
}

func (b *builder) micros(p *expr.Program) (int64, error) {
	v, err := p.Eval(&b.vars)
	if err != nil {
		return 0, err
	}
	t := v.(time.Time)
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		return 0, at(p, errors.New("a time finer than a millisecond: truncate it with millis(…)"))
	}
	if t.Unix() < 0 {
		return 0, at(p, errors.New("a time before 1970, which no cell can have"))
	}
	return t.UnixMicro(), nil
}
