package scanjob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// TableOf returns the full name of the table that a scan reads.
func TableOf(s *pipeline.Scan) string {
	return s.Table.Ref().String()
}

// SameTable is an error where a plan was made for another table than the one that the
// scan reads now: its ranges are keys of that table, and none of this one's need lie in
// them. planned is empty where the planner has kept no name, which is no error.
func SameTable(planned string, s *pipeline.Scan) error {
	if now := TableOf(s); planned != "" && planned != now {
		return fmt.Errorf("it was planned for table %s, and the pipeline file (with BIGTABLE_PROJECT and BIGTABLE_INSTANCE) now says %s", planned, now)
	}
	return nil
}

// The parts of a definition, as people call them. Sink is what a scan that is sent
// elsewhere does not use.
const (
	partRows  = "rows"
	partCells = "cells"
	partLimit = "limit"
	partEmit  = "emit"
	partTypes = "the table's columns"
	PartSink  = "to"
)

// Definition is what makes two runs of a scan deliver the same records of the same
// rows: a hash of each part that says so, by the part's name. Where a part stands in
// the file, and how the scan is read (fetch, appProfile), makes no difference, nor does
// what is done with rows that cannot be read or sent.
func Definition(s *pipeline.Scan) map[string]string {
	return map[string]string{
		partRows: digest(s.Rows), partCells: digest(cellsOf(s.Cells)), partLimit: digest(s.Limit), partEmit: digest(s.Emit), PartSink: digest(s.To),
		partTypes: digest([]any{s.Table.Key, s.Table.NullString, s.Table.Families}),
	}
}

// cellsOf names families and columns; of what type they are is another part.
func cellsOf(c pipeline.Cells) []any {
	var names []string
	for _, f := range c.Families {
		names = append(names, f.Name)
	}
	for _, column := range c.Columns {
		names = append(names, column.Family.Name+":"+column.Qualifier)
	}
	c.Families, c.Columns = nil, nil
	return []any{names, c}
}

// Changed returns the names of the parts, in order, that a definition has otherwise. A
// part that either does not know is the same.
func Changed(planned, now map[string]string) []string {
	var changed []string
	for _, part := range slices.Sorted(maps.Keys(planned)) {
		if hash := now[part]; hash != "" && hash != planned[part] {
			changed = append(changed, part)
		}
	}
	return changed
}

func digest(v any) string {
	h := sha256.New()
	write(h, reflect.ValueOf(v))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Types whose fields say where something stands, or what it means in another way.
var (
	position   = reflect.TypeFor[pipeline.Pos]()
	expression = reflect.TypeFor[pipeline.Expr]()
	expected   = reflect.TypeFor[*regexp.Regexp]()
	moment     = reflect.TypeFor[time.Time]()
	collection = reflect.TypeFor[*pipeline.GCRule]()
)

// write adds a value of the pipeline's types to a hash: each part with its name, and
// nothing for a zero value, so that an option that a later version adds changes no hash
// until somebody uses it.
func write(h hash.Hash, v reflect.Value) {
	if !v.IsValid() || v.IsZero() {
		io.WriteString(h, "0;")
		return
	}
	switch v.Type() {
	case position, collection:
		return
	case expression:
		fmt.Fprintf(h, "%q;", v.Interface().(pipeline.Expr).Source)
		return
	case expected:
		fmt.Fprintf(h, "%q;", v.Interface().(*regexp.Regexp).String())
		return
	case moment:
		fmt.Fprintf(h, "%d;", v.Interface().(time.Time).UnixMicro())
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		write(h, v.Elem())
	case reflect.Slice, reflect.Array:
		fmt.Fprintf(h, "%d[", v.Len())
		for i := range v.Len() {
			write(h, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !v.Field(i).IsZero() {
				fmt.Fprintf(h, "%s:", f.Name)
				write(h, v.Field(i))
			}
		}
		io.WriteString(h, "}")
	case reflect.String:
		fmt.Fprintf(h, "%q;", v.String())
	default:
		fmt.Fprintf(h, "%v;", v.Interface())
	}
}
