package filediff

import (
	"slices"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/pipetest"
)

// examples returns the tests of both files of which the versions make different things. A row of
// a test has the bytes that its own file's encodings give it.
func examples(old, new *lint.Loaded) ([]Example, error) {
	was, err := pipetest.New(old.Pipeline, old.Write)
	if err != nil {
		return nil, err
	}
	is, err := pipetest.New(new.Pipeline, new.Write)
	if err != nil {
		return nil, err
	}
	out := []Example{}
	seen := map[string]bool{}
	for _, t := range slices.Concat(new.Pipeline.Tests, old.Pipeline.Tests) {
		if seen[t.Name] {
			continue
		}
		seen[t.Name] = true
		var before, after [][]string
		switch {
		case t.Message != nil && old.Write != nil && new.Write != nil:
			before, after = was.Becomes(t.Message), is.Becomes(t.Message)
		case t.Row != nil:
			if before, err = emits(t.Row, old.Pipeline); err != nil {
				return nil, err
			}
			if after, err = emits(t.Row, new.Pipeline); err != nil {
				return nil, err
			}
		}
		if e := (Example{t.Name, missing(before, after), missing(after, before)}); len(e.Old)+len(e.New) > 0 {
			out = append(out, e)
		}
	}
	return out, nil
}

// emits returns the records of a row under a version, none if it lacks the scan.
func emits(t *pipeline.TestRow, p *pipeline.Pipeline) ([][]string, error) {
	i := slices.IndexFunc(p.Scans, func(s *pipeline.Scan) bool { return s.Name == t.Scan.Name })
	if i < 0 {
		return nil, nil
	}
	return pipetest.Emits(t, p.Scans[i])
}

// missing returns the lines of the blocks that from lacks: as many of equal ones as it has fewer.
func missing(blocks, from [][]string) []string {
	left := map[string]int{}
	for _, b := range from {
		left[strings.Join(b, "\n")]++
	}
	out := []string{}
	for _, b := range blocks {
		key := strings.Join(b, "\n")
		if left[key]--; left[key] < 0 {
			out = append(out, b...)
		}
	}
	return out
}
