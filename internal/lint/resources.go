package lint

import (
	"fmt"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Duration is a time.Duration that prints as Terraform wants it: whole seconds, "300s".
type Duration time.Duration

// String returns whole seconds, as in "300s".
func (d Duration) String() string { return fmt.Sprintf("%ds", int64(time.Duration(d)/time.Second)) }

// MarshalText is String, for JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Resources are what a pipeline needs around its tables, derived from its file by the
// table in docs/design.md, "One image, four services".
type Resources struct {
	Services      []Service      `json:"services"`
	Topics        []string       `json:"topics"` // ids
	Subscriptions []Subscription `json:"subscriptions"`
	Schedules     []Schedule     `json:"schedules"`
	// Outputs are topics that records are sent to. They are not the pipeline's own, and
	// named as in the file: an id, or projects/PROJECT/topics/ID.
	Outputs []string `json:"outputs,omitempty"`
}

// Service is one function on Cloud Run. It runs as the service account of the same id.
type Service struct {
	ID       string    `json:"id"`
	Function Principal `json:"function"` // FUNCTION_TARGET
	Budget   Duration  `json:"budget"`   // of the handler
	Timeout  Duration  `json:"timeout"`  // of the service: longer than the budget
}

// Subscription pushes to a service or, where Service is empty, waits to be pulled. It
// never expires. Zero backoffs are Pub/Sub's default, zero MaxAttempts no limit.
type Subscription struct {
	ID              string   `json:"id"`
	Topic           string   `json:"topic"`
	Service         string   `json:"service,omitempty"`
	AckDeadline     Duration `json:"ackDeadline"` // longer than the service's timeout
	Retention       Duration `json:"retention"`
	MinBackoff      Duration `json:"minBackoff,omitzero"`
	MaxBackoff      Duration `json:"maxBackoff,omitzero"`
	MaxAttempts     int      `json:"maxAttempts,omitempty"`
	DeadLetterTopic string   `json:"deadLetterTopic,omitempty"`
	Ordered         bool     `json:"ordered,omitempty"`
}

// Schedule is a job of Cloud Scheduler: a tick is a POST to a service with an OIDC token;
// what starts a scan is a message to a topic, for the planner names a scan by what Pub/Sub
// says of its request.
type Schedule struct {
	ID       string `json:"id"`
	Cron     string `json:"cron"`
	TimeZone string `json:"timeZone"`
	Service  string `json:"service,omitempty"`
	Scan     string `json:"scan,omitempty"`    // the scan to start; empty for a tick
	Topic    string `json:"topic,omitempty"`   // of the message that starts it
	Message  string `json:"message,omitempty"` // its body
}

const (
	day = 24 * time.Hour
	// retention is how long a topic's subscriptions keep messages.
	retention = 7 * day
	// longestRetention is the longest that Pub/Sub has; what is given up on waits so
	// long for somebody to look.
	longestRetention = 31 * day
	// shortestRetention is the shortest that Pub/Sub has. A change task is only a
	// hint, void one window after it was published.
	shortestRetention = 10 * time.Minute
	// longestDeadline is the longest that Pub/Sub has.
	longestDeadline = 600 * time.Second
	// attempts is after how many refusals Pub/Sub moves a message to NAME-undelivered.
	attempts = 100
)

// resources derives them.
func resources(p *pipeline.Pipeline) Resources {
	// Lists of nothing are [] as JSON.
	r := &deriver{p: p, out: Resources{Services: []Service{}, Topics: []string{}, Subscriptions: []Subscription{}, Schedules: []Schedule{}}}
	if w := p.Write; w != nil {
		r.service(Write, 270, 290)
		s := r.push(pipeline.TopicEvents, Write, 300, retention)
		s.MinBackoff, s.MaxBackoff = seconds(10), seconds(300)
		s.Ordered = w.Ordered
		r.giveUp(s)
	}
	if len(p.Scans) > 0 {
		r.service(ScanPlanner, 270, 290)
		r.service(ScanWorker, 100, 110)
		s := r.push(pipeline.TopicScanRequests, ScanPlanner, 300, retention)
		s.MinBackoff, s.MaxBackoff = seconds(10), seconds(300)
		r.giveUp(s)
		s = r.push(pipeline.TopicScanTasks, ScanWorker, 120, retention)
		s.MinBackoff, s.MaxBackoff = seconds(10), seconds(60)
		r.topic(pipeline.TopicScanDone)
	}
	if len(p.Changes) > 0 {
		r.service(Changes, 100, 110)
		r.push(pipeline.TopicChangeTasks, Changes, 120, shortestRetention)
	}
	r.kept()
	r.schedules()
	r.outputs()
	return r.out
}

// deriver collects the resources of one pipeline.
type deriver struct {
	p   *pipeline.Pipeline
	out Resources
	// undelivered says that a subscription moves messages to NAME-undelivered.
	undelivered bool
}

func seconds(n int) Duration { return Duration(time.Duration(n) * time.Second) }

func (r *deriver) id(suffix string) string { return r.p.Name + "-" + suffix }

func (r *deriver) topic(t pipeline.Topic) string {
	id := t.Of(r.p.Name)
	r.out.Topics = append(r.out.Topics, id)
	return id
}

func (r *deriver) service(f Principal, budget, timeout int) {
	r.out.Services = append(r.out.Services, Service{r.id(string(f)), f, seconds(budget), seconds(timeout)})
}

// push adds a topic with a subscription that pushes to a function.
func (r *deriver) push(topic pipeline.Topic, to Principal, deadline int, keep time.Duration) *Subscription {
	id := r.topic(topic)
	r.out.Subscriptions = append(r.out.Subscriptions, Subscription{
		ID: id, Topic: id, Service: r.id(string(to)), AckDeadline: seconds(deadline), Retention: Duration(keep),
	})
	return &r.out.Subscriptions[len(r.out.Subscriptions)-1]
}

func (r *deriver) giveUp(s *Subscription) {
	s.MaxAttempts, s.DeadLetterTopic = attempts, pipeline.TopicUndelivered.Of(r.p.Name)
	r.undelivered = true
}

// kept adds the topics of what is given up on, each with a subscription to pull from.
func (r *deriver) kept() {
	if r.deadLetters() {
		r.pull(pipeline.TopicDeadLetter)
	}
	if r.undelivered {
		r.pull(pipeline.TopicUndelivered)
	}
}

func (r *deriver) pull(t pipeline.Topic) {
	id := r.topic(t)
	r.out.Subscriptions = append(r.out.Subscriptions, Subscription{
		ID: id, Topic: id, AckDeadline: Duration(longestDeadline), Retention: Duration(longestRetention),
	})
}

// deadLetters reports whether a policy of the file keeps dead letters.
func (r *deriver) deadLetters() bool {
	var policies []pipeline.Policy
	if w := r.p.Write; w != nil {
		policies = append(policies, w.OnFailure, w.OnUnmatched)
	}
	for _, s := range r.p.Scans {
		policies = append(policies, s.OnFailure)
	}
	for _, c := range r.p.Changes {
		policies = append(policies, c.OnFailure)
	}
	return slices.Contains(policies, pipeline.PolicyDeadLetter)
}

// schedules adds the tick of the change streams, every minute, and those of scans.
func (r *deriver) schedules() {
	if len(r.p.Changes) > 0 {
		r.out.Schedules = append(r.out.Schedules, Schedule{ID: r.id("tick"), Cron: "* * * * *", TimeZone: "Etc/UTC", Service: r.id(string(Changes))})
	}
	for _, s := range r.p.Scans {
		if s.Schedule != nil {
			r.out.Schedules = append(r.out.Schedules, Schedule{
				ID: r.id("scan-" + s.Name), Cron: s.Schedule.Cron, TimeZone: s.Schedule.TimeZone,
				Scan: s.Name, Topic: pipeline.TopicScanRequests.Of(r.p.Name), Message: fmt.Sprintf(`{"scan":%q,"scheduled":true}`, s.Name),
			})
		}
	}
}

// outputs adds the topics of sinks, each once.
func (r *deriver) outputs() {
	var sinks []pipeline.Sink
	for _, s := range r.p.Scans {
		sinks = append(sinks, s.To)
	}
	for _, c := range r.p.Changes {
		sinks = append(sinks, c.To)
	}
	for _, s := range sinks {
		if s.PubSub != nil && !slices.Contains(r.out.Outputs, s.PubSub.Topic) {
			r.out.Outputs = append(r.out.Outputs, s.PubSub.Topic)
		}
	}
}
