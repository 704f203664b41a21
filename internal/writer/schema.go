package writer

import (
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Schemas finds the schema of a table among those of a pipeline file: the table with
// that id or, failing that, the first with a computed id that matches.
func Schemas(tables []*pipeline.Table) func(pipeline.TableRef) (Schema, error) {
	literal := map[pipeline.TableRef]*pipeline.Table{}
	var computed []*pipeline.Table
	for _, t := range tables {
		if t.IDMatches != nil {
			computed = append(computed, t)
			continue
		}
		literal[t.Ref()] = t
	}
	return func(ref pipeline.TableRef) (Schema, error) {
		if t := literal[ref]; t != nil {
			return schemaOf(t), nil
		}
		for _, t := range computed {
			if t.Project == ref.Project && t.Instance == ref.Instance && t.IDMatches.MatchString(ref.Table) {
				return schemaOf(t), nil
			}
		}
		// The id may be computed of a record: it is not quoted.
		return Schema{}, fmt.Errorf("the pipeline has no such table in instance %q of project %q", ref.Instance, ref.Project)
	}
}

func schemaOf(t *pipeline.Table) Schema {
	return Schema{Name: t.Name, Computed: t.IDMatches != nil, AppProfile: t.AppProfile, View: t.AuthorizedView, Create: t.Create, Families: t.Families}
}
