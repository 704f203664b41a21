// Package deploy puts handlers of tests behind the subscriptions that a pipeline has when
// it is deployed, with what its resources say of each.
package deploy

import (
	"net/http"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Write makes the topics of a pipeline file, and its subscriptions but for those of
// scans, as they are deployed. That of the events pushes to h, and is otherwise as tune
// leaves it; it is returned.
func Write(t testing.TB, c *localcloud.Cloud, file string, h http.Handler, tune func(*localcloud.Push)) *localcloud.Subscription {
	t.Helper()
	loaded, findings := lint.Load([]byte(file), pipeline.Options{File: "pipeline.yaml"})
	if loaded == nil {
		t.Fatal(findings.Err())
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	name, resources := loaded.Pipeline.Name, loaded.Report.Resources
	must(c.CreateTopics(t.Context(), resources.Topics...))
	var events *localcloud.Subscription
	for _, s := range resources.Subscriptions {
		switch s.Service {
		case "":
			must(c.CreatePull(t.Context(), s.Topic, s.ID, time.Duration(s.AckDeadline)))
		case name + "-" + string(lint.Write):
			p := localcloud.PushOf(&s)
			p.Handler = h
			tune(&p)
			var err error
			events, err = c.CreatePush(t.Context(), p)
			must(err)
		}
	}
	return events
}
