package mapping

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// made is a row before it is merged.
type made struct {
	table     pipeline.TableRef
	key       []byte
	mutations []*bigtablepb.Mutation
	bytes     int // at least the serialized size
	token     []byte

	paidMutations, paidBytes int // charged so far
}

func (s *Session) record(i int, r *record.Record) {
	if r.Err != nil {
		s.result.Rejected = append(s.result.Rejected, &Rejection{Record: i, Err: r.Err})
		return
	}
	s.vars.Event, s.vars.Raw, s.vars.Item = r.Value, r.Raw, nil
	if s.w.skip != nil {
		skip, err := s.w.skip.Holds(&s.vars)
		if err != nil {
			s.result.Rejected = append(s.result.Rejected, reject(i, nil, err))
			return
		}
		if skip {
			s.result.Skipped++
			return
		}
	}
	if r.Entry != nil {
		s.entry(i, r)
		return
	}
	matched := false
	for _, m := range s.w.mappings {
		s.vars.Item = nil
		took, err := s.apply(i, m)
		matched = matched || took
		if err != nil {
			s.result.Rejected = append(s.result.Rejected, reject(i, m, err))
		}
	}
	if !matched {
		s.result.Unmatched = append(s.result.Unmatched, i)
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
		r.Place = strings.TrimPrefix(r.Place, m.src.Place()+".")
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
func (s *Session) apply(i int, m *mapping) (bool, error) {
	if m.when != nil {
		takes, err := m.when.Holds(&s.vars)
		if err != nil || !takes {
			return err != nil, err
		}
	}
	s.made = s.made[:0]
	if m.forEach == nil {
		if err := s.row(i, m); err != nil {
			return true, err
		}
	} else if err := s.each(i, m); err != nil {
		return true, err
	}
	s.gather()
	for k := range s.made {
		if err := s.w.limits.check(&s.made[k], m.src.Dedupe == pipeline.DedupeMarker); err != nil {
			return true, &placedError{"mutations", err}
		}
	}
	for k := range s.made {
		s.merge(i, m, &s.made[k])
	}
	return true, nil
}

func (s *Session) each(i int, m *mapping) error {
	items, err := m.forEach.Eval(&s.vars)
	if err != nil {
		return err
	}
	list := items.([]any)
	if err := s.take(sizeOfItem * int64(len(list))); err != nil {
		return at(m.forEach, err)
	}
	for k, item := range list {
		if err := s.watch(k); err != nil {
			return err
		}
		s.vars.Item = item
		if err := s.row(i, m); err != nil {
			return err
		}
	}
	return nil
}

// row makes one row of the variables at hand, which are those of record i.
func (s *Session) row(i int, m *mapping) error {
	table, err := s.table(m)
	if err != nil {
		return err
	}
	key, err := s.key(m)
	if err != nil {
		return err
	}
	micros, err := s.time(m)
	if err != nil {
		return err
	}
	r := made{table: table, key: key, bytes: len(key)}
	if r.token, err = s.token(i, m, table, key); err != nil {
		return err
	}
	if err := s.mutations(m, micros, &r); err != nil {
		return err
	}
	if len(r.mutations) == 0 { // every value is absent, or every mutation's when says no
		return nil
	}
	s.made = append(s.made, r)
	return nil
}

func (s *Session) table(m *mapping) (pipeline.TableRef, error) {
	if m.idFrom == nil {
		return m.ref, nil
	}
	id, err := m.idFrom.Eval(&s.vars)
	if err != nil {
		return m.ref, err
	}
	if err := checkID(m.src.Table, id.(string)); err != nil {
		return m.ref, at(m.idFrom, err)
	}
	ref := m.ref
	ref.Table = id.(string)
	return ref, nil
}

func (s *Session) key(m *mapping) ([]byte, error) {
	v, err := m.rowKey.Eval(&s.vars)
	if err != nil {
		return nil, err
	}
	key, err := m.src.Table.Key.Append(nil, v, "")
	if err != nil {
		return nil, at(m.rowKey, err)
	}
	if err := s.w.limits.checkKey(key); err != nil {
		return nil, at(m.rowKey, err)
	}
	return key, nil
}

func (l *Limits) checkKey(key []byte) error {
	if len(key) == 0 || len(key) > l.KeyBytes {
		return fmt.Errorf("a row key of %d bytes; Bigtable takes 1 to %d", len(key), l.KeyBytes)
	}
	return nil
}

// time returns the record's time in microseconds, a whole number of milliseconds.
func (s *Session) time(m *mapping) (int64, error) {
	if m.timestamp == nil {
		t := s.vars.Message.PublishTime
		if t.IsZero() {
			return 0, &placedError{"timestamp", errors.New("the message has no publish time, which is the default: give the mapping a timestamp")}
		}
		if t.Unix() < 0 {
			return 0, &placedError{"timestamp", errors.New("the message's publish time is before 1970, and no cell can have it")}
		}
		return t.UnixMilli() * 1000, nil
	}
	micros, err := s.micros(m.timestamp)
	if err == nil && !m.src.AllowFuture && micros > s.now.Add(farAhead).UnixMicro() {
		err = at(m.timestamp, errors.New("a time more than a day ahead, which would hide what is written until then: mend it, or write allowFuture: true"))
	}
	return micros, err
}

// farAhead is how far ahead of the delivery the time of a cell may be: further than clocks
// and time zones differ.
const farAhead = 24 * time.Hour

func (s *Session) micros(p *expr.Program) (int64, error) {
	v, err := p.Eval(&s.vars)
	if err != nil {
		return 0, err
	}
	micros, err := recordTime(v.(time.Time))
	if err != nil {
		return 0, at(p, err)
	}
	return micros, nil
}

// recordTime returns a time in microseconds, a whole number of milliseconds.
func recordTime(t time.Time) (int64, error) {
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		return 0, errors.New("a time finer than a millisecond: truncate it with millis(…)")
	}
	if t.Unix() < 0 {
		return 0, errors.New("a time before 1970, which no cell can have")
	}
	return t.UnixMicro(), nil
}
