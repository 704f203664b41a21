package tail

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Choose returns the change stream to be followed: the one of that name or, if there is
// none, all changes of the table of that name. Without a name it is the only change stream,
// or the only table of a file without change streams. The result is as the file says but
// for its sink and the expressions that shape records for it: whole changes are shown.
func Choose(p *pipeline.Pipeline, name string) (*pipeline.Change, error) {
	for _, c := range p.Changes {
		if c.Name == name || name == "" && len(p.Changes) == 1 {
			return &pipeline.Change{
				Name: c.Name, Pos: c.Pos, Table: c.Table, AppProfile: c.AppProfile, Filter: c.Filter,
				MaxRecordBytes: c.MaxRecordBytes, To: pipeline.Sink{Log: true},
			}, nil
		}
	}
	for _, t := range p.Tables {
		if (t.Name == name || name == "" && len(p.Tables) == 1 && len(p.Changes) == 0) && t.IDFrom.IsZero() {
			return &pipeline.Change{Name: t.Name, Table: t, AppProfile: t.AppProfile, MaxRecordBytes: tableMaxBytes, To: pipeline.Sink{Log: true}}, nil
		}
	}
	if name == "" {
		return nil, fmt.Errorf("name one of these: %s", strings.Join(names(p), ", "))
	}
	return nil, fmt.Errorf("%s is neither a change stream of the file nor a table with a fixed id; there are %s", name, strings.Join(names(p), ", "))
}

// tableMaxBytes is the most bytes of a change that is shown of a table which is followed
// without a change stream of the file.
const tableMaxBytes = 16 << 20

func names(p *pipeline.Pipeline) []string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, c.Name)
	}
	for _, t := range p.Tables {
		if t.IDFrom.IsZero() && !slices.Contains(out, t.Name) {
			out = append(out, t.Name)
		}
	}
	return out
}

// Only limits a change stream to entries of families, which the table must declare and the
// stream's own filter must take. Changes without such an entry are then not shown. No
// families are no limit.
func Only(c *pipeline.Change, families []string) error {
	if len(families) == 0 {
		return nil
	}
	var patterns []*regexp.Regexp
	for _, name := range families {
		if !slices.ContainsFunc(c.Table.Families, func(f *pipeline.Family) bool { return f.Name == name }) {
			return fmt.Errorf("table %s has no family %s in the file", c.Table.Name, name)
		}
		if !c.Filter.Families.Match(name) {
			return fmt.Errorf("the filter of change stream %s leaves family %s out", c.Name, name)
		}
		patterns = append(patterns, regexp.MustCompile("^"+regexp.QuoteMeta(name)+"$"))
	}
	c.Filter.Families, c.Filter.DropEmpty = pipeline.NameFilter{Include: patterns}, true
	return nil
}

// ParseTime reads a time: a duration back from now, with or without a minus sign, or a time
// of RFC 3339.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(strings.TrimPrefix(text, "-")); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, errors.New("neither a duration back from now, as -1h, nor a time, as 2026-08-30T10:00:00Z")
}
