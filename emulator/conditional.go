package emulator

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// CheckAndMutateRow applies one of two lists of mutations, by whether a
// filter lets any cell of the row through.
func (d *dataService) CheckAndMutateRow(_ context.Context, req *bigtablepb.CheckAndMutateRowRequest) (*bigtablepb.CheckAndMutateRowResponse, error) {
	subject, err := subjectOf(req.TableName, req.AuthorizedViewName)
	if err != nil {
		return nil, err
	}
	cluster, err := d.e.transactional(subject, req.AppProfileId)
	if err != nil {
		return nil, err
	}
	res := &bigtablepb.CheckAndMutateRowResponse{}
	err = d.e.changeThrough(subject, func(s *session, v *view) (err error) {
		s.cluster = cluster
		res.PredicateMatched, err = s.checkAndMutate(req, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (s *session) checkAndMutate(req *bigtablepb.CheckAndMutateRowRequest, v *view) (matched bool, err error) {
	if err := s.e.checkKey(req.RowKey); err != nil {
		return false, err
	}
	if len(req.TrueMutations)+len(req.FalseMutations) == 0 {
		return false, status.Error(codes.InvalidArgument, "true_mutations and false_mutations are both empty: at least one mutation must be specified")
	}
	f, err := s.e.compileFilter(req.PredicateFilter, v.schema(s.t.schema))
	if err != nil {
		return false, err
	}
	if err := s.validateBranches(req); err != nil {
		return false, err
	}
	for _, muts := range [][]*bigtablepb.Mutation{req.TrueMutations, req.FalseMutations} {
		if err := v.permits(req.RowKey, muts); err != nil {
			return false, err
		}
	}
	matched = f.Matches(v.visible(s.row(string(req.RowKey))))
	muts := req.FalseMutations
	if matched {
		muts = req.TrueMutations
	}
	if len(muts) > 0 {
		s.mutate(changeUser, string(req.RowKey), muts, nil)
	}
	return matched, nil
}

// validateBranches checks both lists, whichever will be applied.
func (s *session) validateBranches(req *bigtablepb.CheckAndMutateRowRequest) error {
	var missing error
	for _, branch := range []struct {
		field string
		muts  []*bigtablepb.Mutation
	}{{"true_mutations", req.TrueMutations}, {"false_mutations", req.FalseMutations}} {
		if len(branch.muts) == 0 {
			continue
		}
		m, refused := s.e.validateMutations(s.t.schema, branch.muts, branch.field)
		if refused != nil {
			return refused
		}
		if missing == nil {
			missing = m
		}
	}
	return missing
}

// ReadModifyWriteRow appends to or increments the newest cells of columns and
// answers with the new ones.
func (d *dataService) ReadModifyWriteRow(_ context.Context, req *bigtablepb.ReadModifyWriteRowRequest) (*bigtablepb.ReadModifyWriteRowResponse, error) {
	subject, err := subjectOf(req.TableName, req.AuthorizedViewName)
	if err != nil {
		return nil, err
	}
	cluster, err := d.e.transactional(subject, req.AppProfileId)
	if err != nil {
		return nil, err
	}
	res := &bigtablepb.ReadModifyWriteRowResponse{}
	err = d.e.changeThrough(subject, func(s *session, v *view) (err error) {
		s.cluster = cluster
		res.Row, err = s.readModifyWrite(req, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (s *session) readModifyWrite(req *bigtablepb.ReadModifyWriteRowRequest, v *view) (*bigtablepb.Row, error) {
	if err := s.validateRules(req); err != nil {
		return nil, err
	}
	if err := v.permitsRules(req.RowKey, req.Rules); err != nil {
		return nil, err
	}
	sets, written, err := s.evaluate(store.CellsOf(s.row(string(req.RowKey))), req.Rules)
	if err != nil {
		return nil, err
	}
	// What a rule makes must itself be a mutation that the service takes: an
	// append may grow a cell past the limit.
	if missing, refused := s.e.validateMutations(s.t.schema, sets, "rules"); refused != nil || missing != nil {
		return nil, refused
	}
	s.mutate(changeUser, string(req.RowKey), sets, nil)
	return rowProto(req.RowKey, written), nil
}

func (s *session) validateRules(req *bigtablepb.ReadModifyWriteRowRequest) error {
	if err := s.e.checkKey(req.RowKey); err != nil {
		return err
	}
	if len(req.Rules) == 0 {
		return status.Error(codes.InvalidArgument, "Error in field 'rules' : At least one rule must be specified")
	}
	if len(req.Rules) > s.e.limits.EntryMutations {
		return status.Errorf(codes.InvalidArgument, "Error in field 'rules' : Too many rules: %d, the limit is %d", len(req.Rules), s.e.limits.EntryMutations)
	}
	var missing error
	for i, rule := range req.Rules {
		f := s.t.schema.Families[rule.GetFamilyName()]
		if f == nil {
			missing = status.Error(codes.NotFound, store.MissingFamily)
		} else if f.Aggregate != nil {
			return ruleError(i, fmt.Sprintf("the family '%s' is an aggregate family", f.Name))
		}
		if rule.GetRule() == nil {
			return ruleError(i, "append_value or increment_amount must be set")
		}
	}
	return missing
}

func ruleError(i int, text string) error {
	return status.Errorf(codes.InvalidArgument, "Error in field 'rules' : Error in element #%d : %s", i, text)
}

type columnName struct{ family, qualifier string }

// evaluate works out the cells that rules write, later rules seeing what
// earlier ones wrote: one SetCell and one cell per column. The timestamp is
// the later of now and that of the cell before.
func (s *session) evaluate(cells []store.Cell, rules []*bigtablepb.ReadModifyWriteRule) ([]*bigtablepb.Mutation, []store.Cell, error) {
	var written []store.Cell
	index := map[columnName]int{}
	for i, rule := range rules {
		name := columnName{rule.FamilyName, string(rule.ColumnQualifier)}
		j, again := index[name]
		cell := store.Cell{Family: name.family, Qualifier: name.qualifier, Timestamp: s.now - s.now%s.t.schema.Unit}
		exists := again
		if again {
			cell = written[j]
		} else if column := store.Column(cells, name.family, name.qualifier); len(column) > 0 {
			exists = true
			cell.Value, cell.Timestamp = column[0].Value, max(cell.Timestamp, column[0].Timestamp)
		}
		value, err := newValue(rule, cell.Value, exists)
		if err != nil {
			return nil, nil, ruleError(i, err.Error())
		}
		cell.Value = value
		if again {
			written[j] = cell
		} else {
			index[name] = len(written)
			written = append(written, cell)
		}
	}
	sets := make([]*bigtablepb.Mutation, len(written))
	for i, c := range written {
		sets[i] = &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
			FamilyName: c.Family, ColumnQualifier: []byte(c.Qualifier), TimestampMicros: c.Timestamp, Value: c.Value,
		}}}
	}
	return sets, written, nil
}

func newValue(rule *bigtablepb.ReadModifyWriteRule, old []byte, exists bool) ([]byte, error) {
	if k, ok := rule.Rule.(*bigtablepb.ReadModifyWriteRule_AppendValue); ok {
		return append(old[:len(old):len(old)], k.AppendValue...), nil
	}
	n := uint64(rule.GetIncrementAmount())
	if exists {
		if len(old) != 8 {
			return nil, fmt.Errorf("the cell to increment has %d bytes, not 8", len(old))
		}
		n += binary.BigEndian.Uint64(old)
	}
	return binary.BigEndian.AppendUint64(nil, n), nil
}

// rowProto is a row of cells, one per column, in order.
func rowProto(key []byte, cells []store.Cell) *bigtablepb.Row {
	row := &bigtablepb.Row{Key: key}
	var family *bigtablepb.Family
	for _, c := range sorted(cells) {
		if family == nil || family.Name != c.Family {
			family = &bigtablepb.Family{Name: c.Family}
			row.Families = append(row.Families, family)
		}
		family.Columns = append(family.Columns, &bigtablepb.Column{
			Qualifier: []byte(c.Qualifier),
			Cells:     []*bigtablepb.Cell{{TimestampMicros: c.Timestamp, Value: c.Value}},
		})
	}
	return row
}

func sorted(cells []store.Cell) []store.Cell {
	slices.SortFunc(cells, func(a, b store.Cell) int { return store.CompareCells(&a, &b) })
	return cells
}
