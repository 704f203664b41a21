package scanworker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"cloud.google.com/go/pubsub/v2"

	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
)

func TestTheWorkerHasTheSinksThatTheFileIsToldItHas(t *testing.T) {
	const file = "../../internal/pipeline/testdata/every.yaml"
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	p, err := pipeline.Parse(text, pipeline.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	c, err := localcloud.New(localcloud.Options{Project: "p", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	client, err := c.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	open := scanworker.Sinks(sink.NewSinks(func(context.Context) (*pubsub.Client, error) { return client, nil }, slog.New(slog.DiscardHandler)))
	kinds := map[string]bool{}
	for _, s := range p.Scans {
		kinds[s.To.Kind()] = true
		got, err := open(t.Context(), s)
		if served := s.To.Served() == nil; (got != nil && err == nil) != served {
			t.Errorf("a sink %s: %v, %v; the file is told that it is served: %t", s.To.Kind(), got, err, served)
		}
	}
	if len(kinds) != 6 {
		t.Errorf("the file has sinks %v, want every kind", kinds)
	}
}
