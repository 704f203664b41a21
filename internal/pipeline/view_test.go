package pipeline

import (
	"strings"
	"testing"
)

// viewed is a file whose table is used through an authorized view.
const viewed = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    authorizedView: writers
    families: {cf: {}}
write:
  mappings:
    - name: orders
      table: orders
      rowKey: event.id
      mutations:
        - set: {cf: {status: event.status}}
`

func TestATableMayBeUsedThroughAnAuthorizedView(t *testing.T) {
	p, err := Parse([]byte(viewed), Options{File: "pipeline.yaml"})
	if err != nil || p.Tables[0].AuthorizedView != "writers" {
		t.Errorf("%+v, %v", p, err)
	}
	for name, c := range map[string]struct{ more, want string }{
		"a deleted row":   {"        - deleteRow: true\n", "a view does not serve that"},
		"a change stream": {"changes: {feed: {table: orders, appProfile: single, to: {log: {}}}}\n", "change streams are not served through a view"},
	} {
		if _, err := Parse([]byte(viewed+c.more), Options{File: "pipeline.yaml"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
