package localdeploy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// retention is how long tables keep their changes: as short as the service allows, because
// they are kept in memory.
const retention = 24 * time.Hour

// streamOf returns how a table is to keep its changes. It is nil if the file reads none.
func streamOf(p *pipeline.Pipeline, t *pipeline.Table) *adminpb.ChangeStreamConfig {
	if slices.ContainsFunc(p.Changes, func(c *pipeline.Change) bool { return c.Table == t }) {
		return &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(retention)}
	}
	return nil
}

// eager returns the pipeline with change streams that are read all the time, as far as ticks
// come: pauses save money, and here there is none to be saved.
func eager(p *pipeline.Pipeline) *pipeline.Pipeline {
	out := *p
	out.Changes = nil
	for _, c := range p.Changes {
		read := *c
		read.IdleStop, read.MaxIdle = false, 0
		out.Changes = append(out.Changes, &read)
	}
	return &out
}

// Tick does what Cloud Scheduler does each minute for the pipeline's change streams: it sends
// a tick to the function changes. It does nothing if the pipeline has none.
func (d *Deployment) Tick(ctx context.Context, pipelineName string) error {
	url := d.ServiceURL(pipelineName + "-" + string(lint.Changes))
	if url == "" {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("sending a tick to the function changes: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // it has none; the connection is used again
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the function changes answered a tick with status %d", response.StatusCode)
	}
	return nil
}
