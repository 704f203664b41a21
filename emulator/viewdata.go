package emulator

import (
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// view is an authorized view: the rows and columns of a table that a request
// through it can see and change. A nil view is the whole table.
type view struct {
	info     *adminpb.AuthorizedView
	spans    []span             // of the row prefixes, in order, without overlap
	families map[string]columns // by name; others are outside
}

// columns are those of one family that a view includes.
type columns struct {
	exact    map[string]bool
	prefixes []string
}

func newView(info *adminpb.AuthorizedView) *view {
	subset := info.GetSubsetView()
	v := &view{info: info, families: map[string]columns{}}
	for _, p := range subset.GetRowPrefixes() {
		v.spans = append(v.spans, prefixSpan(string(p)))
	}
	if len(v.spans) > 0 {
		v.spans = merge(v.spans)
	}
	for name, f := range subset.GetFamilySubsets() {
		c := columns{exact: map[string]bool{}}
		for _, q := range f.GetQualifiers() {
			c.exact[string(q)] = true
		}
		for _, p := range f.GetQualifierPrefixes() {
			c.prefixes = append(c.prefixes, string(p))
		}
		v.families[name] = c
	}
	return v
}

// prefixSpan is the keys that begin with a prefix.
func prefixSpan(prefix string) span {
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) == 0 {
		return span{start: prefix, unbounded: true}
	}
	end[len(end)-1]++
	return span{start: prefix, end: string(end)}
}

// within is the part of the spans, which are in order and without overlap,
// that the view includes.
func (v *view) within(spans []span) []span {
	if v == nil {
		return spans
	}
	var out []span
	for _, a := range spans {
		for _, b := range v.spans {
			if s, ok := a.intersect(b); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

func (s span) intersect(o span) (span, bool) {
	out := span{start: max(s.start, o.start), end: s.end, unbounded: s.unbounded && o.unbounded}
	if s.unbounded || !o.unbounded && o.end < s.end {
		out.end = o.end
	}
	return out, out.unbounded || out.start < out.end
}

func (v *view) hasRow(key string) bool {
	return slices.ContainsFunc(v.spans, func(s span) bool { return s.contains(key) })
}

func (c columns) has(qualifier string) bool {
	return c.exact[qualifier] || slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(qualifier, p) })
}

// visible is the part of a row, nil for none, that the view includes.
func (v *view) visible(r *store.Row) *store.Row {
	if v == nil || r == nil {
		return r
	}
	if !v.hasRow(r.Key) {
		return nil
	}
	var cells []store.Cell
	for _, c := range r.Cells {
		if v.families[c.Family].has(c.Qualifier) {
			cells = append(cells, c)
		}
	}
	if len(cells) == 0 {
		return nil
	}
	return store.NewRow(r.Key, cells)
}

// schema is the part of a table's schema that the view includes.
func (v *view) schema(s *store.Schema) *store.Schema {
	if v == nil {
		return s
	}
	out := &store.Schema{Families: map[string]*store.Family{}, Unit: s.Unit}
	for name := range v.families {
		if f := s.Families[name]; f != nil {
			out.Families[name] = f
		}
	}
	return out
}

func outsideView(what string) error {
	return status.Errorf(codes.PermissionDenied, "Access denied. The authorized view does not include %s.", what)
}

// permits reports a change of a row that reaches outside the view.
func (v *view) permits(key []byte, muts []*bigtablepb.Mutation) error {
	if v == nil {
		return nil
	}
	if !v.hasRow(string(key)) {
		return outsideView("the row key")
	}
	for _, m := range muts {
		if err := v.permitsMutation(m); err != nil {
			return err
		}
	}
	return nil
}

func (v *view) permitsMutation(m *bigtablepb.Mutation) error {
	switch k := m.GetMutation().(type) {
	case *bigtablepb.Mutation_SetCell_:
		return v.permitsColumn(k.SetCell.GetFamilyName(), k.SetCell.GetColumnQualifier())
	case *bigtablepb.Mutation_AddToCell_:
		return v.permitsColumn(k.AddToCell.GetFamilyName(), k.AddToCell.GetColumnQualifier().GetRawValue())
	case *bigtablepb.Mutation_MergeToCell_:
		return v.permitsColumn(k.MergeToCell.GetFamilyName(), k.MergeToCell.GetColumnQualifier().GetRawValue())
	case *bigtablepb.Mutation_DeleteFromColumn_:
		return v.permitsColumn(k.DeleteFromColumn.GetFamilyName(), k.DeleteFromColumn.GetColumnQualifier())
	case *bigtablepb.Mutation_DeleteFromFamily_:
		if !slices.Contains(v.families[k.DeleteFromFamily.GetFamilyName()].prefixes, "") {
			return outsideView("every column of the family")
		}
		return nil
	}
	return outsideView("whole rows, which DeleteFromRow deletes")
}

func (v *view) permitsColumn(family string, qualifier []byte) error {
	if !v.families[family].has(string(qualifier)) {
		return outsideView("the column")
	}
	return nil
}

// permitsRules is like permits for a read-modify-write request.
func (v *view) permitsRules(key []byte, rules []*bigtablepb.ReadModifyWriteRule) error {
	if v == nil {
		return nil
	}
	if !v.hasRow(string(key)) {
		return outsideView("the row key")
	}
	for _, r := range rules {
		if err := v.permitsColumn(r.GetFamilyName(), r.GetColumnQualifier()); err != nil {
			return err
		}
	}
	return nil
}
