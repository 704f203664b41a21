package pipeline

// Topic is one of the Pub/Sub topics that carry a pipeline's own work. A subscription that
// carries its messages on has the id of its topic.
type Topic string

// Values of Topic.
const (
	TopicEvents       Topic = "events"        // messages to write
	TopicDeadLetter   Topic = "dead-letter"   // entries and records that a function gave up on
	TopicUndelivered  Topic = "undelivered"   // messages that Pub/Sub gave up on
	TopicScanRequests Topic = "scan-requests" // to scan-planner
	TopicScanTasks    Topic = "scan-tasks"    // to scan-worker
	TopicScanDone     Topic = "scan-done"     // one message for each scan that has ended
	TopicChangeTasks  Topic = "change-tasks"  // to changes
)

var ownTopics = []Topic{
	TopicEvents, TopicDeadLetter, TopicUndelivered, TopicScanRequests, TopicScanTasks, TopicScanDone, TopicChangeTasks,
}

// Of returns the topic's id in a project, of the pipeline of this name.
func (t Topic) Of(pipelineName string) string { return pipelineName + "-" + string(t) }

// OwnTopics returns the ids of the topics that carry the pipeline's own work.
func (p *Pipeline) OwnTopics() []string {
	ids := make([]string, len(ownTopics))
	for i, t := range ownTopics {
		ids[i] = t.Of(p.Name)
	}
	return ids
}
