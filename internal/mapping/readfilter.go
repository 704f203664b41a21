package mapping

import (
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// MaxFilter is the largest serialized RowFilter that Bigtable takes, in bytes
// (googleapis/java-bigtable-hbase#2192).
const MaxFilter = 20_480

// ReadFilter compiles what a scan reads of a row into one filter, nil for everything.
// It leaves out no row that has a cell in it, and limits no rows, so that it may be
// used on every split. An emit of fields sees the newest version of each column, so
// that no other leaves the server.
func ReadFilter(s *pipeline.Scan) (*bigtablepb.RowFilter, error) {
	f, err := readFilter(s)
	if err != nil {
		return nil, err
	}
	if n := proto.Size(f); n > MaxFilter {
		return nil, fmt.Errorf("the filter has %d bytes, and Bigtable takes %d: name fewer columns, or whole families", n, MaxFilter)
	}
	return f, nil
}

func readFilter(s *pipeline.Scan) (*bigtablepb.RowFilter, error) {
	c := &s.Cells
	switch {
	case c.Filter != "":
		f := new(bigtablepb.RowFilter)
		if err := prototext.Unmarshal([]byte(c.Filter), f); err != nil {
			return nil, fmt.Errorf("%s: cells.filter is no RowFilter in protobuf text: %w", c.FilterPos, err)
		}
		if err := checkFilter(f); err != nil {
			return nil, fmt.Errorf("the filter is one that Bigtable refuses: %w", err)
		}
		return f, nil
	case c.KeysOnly:
		return chain(
			&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowLimitFilter{CellsPerRowLimitFilter: 1}},
			&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_StripValueTransformer{StripValueTransformer: true}},
		), nil
	}
	window, err := windowFilter(c.Since, c.Until)
	if err != nil {
		return nil, err
	}
	versions := c.Versions
	if s.Emit != nil && s.Emit.Fields != nil {
		versions = 1
	}
	return chain(familyFilter(c.Families), columnFilter(c.Columns), window, versionFilter(versions)), nil
}

// chain leaves out what is nil.
func chain(filters ...*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	filters = slices.DeleteFunc(filters, func(f *bigtablepb.RowFilter) bool { return f == nil })
	switch len(filters) {
	case 0:
		return nil
	case 1:
		return filters[0]
	}
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: filters}}}
}

// familyFilter names each family by itself, not all in one pattern: of a pattern that
// is a name the service says NOT_FOUND where there is no such family.
func familyFilter(families []*pipeline.Family) *bigtablepb.RowFilter {
	var filters []*bigtablepb.RowFilter
	for _, f := range families {
		filters = append(filters, familyNamed(f.Name))
	}
	return interleave(filters)
}

func familyNamed(name string) *bigtablepb.RowFilter {
	pattern := string(appendQuotedName(nil, []byte(name)))
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: pattern}}
}

func interleave(filters []*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	switch len(filters) {
	case 0:
		return nil
	case 1:
		return filters[0]
	}
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Interleave_{Interleave: &bigtablepb.RowFilter_Interleave{Filters: filters}}}
}

// columnFilter takes the columns of each family, the families side by side.
func columnFilter(columns []*pipeline.ColumnRef) *bigtablepb.RowFilter {
	var order []string
	byFamily := map[string][][]byte{}
	for _, c := range columns {
		if byFamily[c.Family.Name] == nil {
			order = append(order, c.Family.Name)
		}
		byFamily[c.Family.Name] = append(byFamily[c.Family.Name], []byte(c.Qualifier))
	}
	var filters []*bigtablepb.RowFilter
	for _, family := range order {
		filters = append(filters, chain(familyNamed(family), &bigtablepb.RowFilter{
			Filter: &bigtablepb.RowFilter_ColumnQualifierRegexFilter{ColumnQualifierRegexFilter: anyOf(byFamily[family])},
		}))
	}
	return interleave(filters)
}

func windowFilter(since, until time.Time) (*bigtablepb.RowFilter, error) {
	if since.IsZero() && until.IsZero() {
		return nil, nil
	}
	r := &bigtablepb.TimestampRange{}
	for _, bound := range []struct {
		name string
		t    time.Time
		to   *int64
	}{{"since", since, &r.StartTimestampMicros}, {"until", until, &r.EndTimestampMicros}} {
		switch {
		case bound.t.IsZero():
			continue
		case bound.t.Nanosecond()%int(time.Millisecond) != 0:
			return nil, fmt.Errorf("%s is finer than a millisecond, and no cell's time is", bound.name)
		case bound.t.Unix() < 0:
			return nil, fmt.Errorf("%s is before 1970, and no cell's time is", bound.name)
		}
		*bound.to = bound.t.UnixMicro()
	}
	if !until.IsZero() && !since.Before(until) {
		return nil, fmt.Errorf("no time lies between since and until: until must come after since")
	}
	if !until.IsZero() && r.EndTimestampMicros == 0 {
		return nil, fmt.Errorf("until is the start of 1970, and no cell's time is before it")
	}
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_TimestampRangeFilter{TimestampRangeFilter: r}}, nil
}

func versionFilter(n int) *bigtablepb.RowFilter {
	if n == 0 {
		return nil
	}
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: int32(n)}}
}

// anyOf is the RE2 pattern that matches these names and nothing else, byte for byte.
func anyOf(names [][]byte) []byte {
	var b []byte
	for i, name := range names {
		if i > 0 {
			b = append(b, '|')
		}
		b = appendQuotedName(b, name)
	}
	return b
}

// appendQuotedName puts a backslash before every ASCII byte that may be an operator.
// Bytes from 0x80 on stand for themselves: the service matches bytes, not characters.
func appendQuotedName(b, name []byte) []byte {
	for _, c := range name {
		switch {
		case c == 0:
			b = append(b, `\x00`...) // a backslash before it is no escape in RE2
			continue
		case c < 0x80 && c != '_' && !('0' <= c && c <= '9') && !('a' <= c && c <= 'z') && !('A' <= c && c <= 'Z'):
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return b
}
