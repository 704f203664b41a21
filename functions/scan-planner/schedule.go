package scanplanner

import (
	"errors"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
)

// lookBack is how long after its due time a request may be published: twice as long as
// Cloud Scheduler retries a job by the settings that are deployed with this.
const lookBack = 2 * time.Hour

// scheduledID names a scheduled scan by the time for which it was due, so that two
// requests for one due time are one scan. Cloud Scheduler does not put that time into a
// message: it is the last one that the schedule has up to the message's publishing.
// Where there is none for long, the job was started by hand, now.
func scheduledID(p *pipeline.Pipeline, name string, m push.Message) (string, error) {
	i := slices.IndexFunc(p.Scans, func(s *pipeline.Scan) bool { return s.Name == name })
	if i < 0 || p.Scans[i].Schedule == nil {
		return m.ID, errors.New("the request is a schedule's, and the pipeline has no scan of this name with one")
	}
	if m.PublishTime.IsZero() {
		return m.ID, errors.New("the request is a schedule's, and its message has no publish time to tell for when it was due")
	}
	due, err := scanjob.LastDue(p.Scans[i].Schedule, m.PublishTime.Add(-lookBack), m.PublishTime)
	if err != nil {
		return m.ID, err
	}
	if due.IsZero() {
		due = m.PublishTime.Truncate(time.Minute)
	}
	return name + "@" + due.UTC().Format("2006-01-02T15:04Z"), nil
}
