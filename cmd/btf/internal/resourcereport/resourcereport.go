// Package resourcereport guarantees that the commands print the resources and roles of a pipeline in
// one way: one of them on each line, behind the name of the file.
package resourcereport

import (
	"fmt"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
)

// PrintGrants prints roles.
func PrintGrants(p *terminal.Printer, file string, grants []lint.Grant) {
	for _, g := range grants {
		p.Printf("%s: grant %s: %s on %s %s: %s\n", file, g.Principal, g.Role, g.On.Kind, g.On.Name, g.Why)
		if g.Command != "" {
			p.Printf("%s: grant %s: Terraform has no resource for it; run: %s\n", file, g.Principal, g.Command)
		}
	}
}

// PrintResources prints services, topics, subscriptions and schedules.
func PrintResources(p *terminal.Printer, file string, r *lint.Resources) {
	for _, s := range r.Services {
		p.Printf("%s: service %s: function %s, handler %s, service %s\n", file, s.ID, s.Function, s.Budget, s.Timeout)
	}
	for _, topic := range r.Topics {
		p.Printf("%s: topic %s\n", file, topic)
	}
	for _, topic := range r.Outputs {
		p.Printf("%s: topic %s: not the pipeline's own, records are sent there\n", file, topic)
	}
	for _, s := range r.Subscriptions {
		p.Printf("%s: subscription %s: %s\n", file, s.ID, Subscription(&s))
	}
	for _, s := range r.Schedules {
		what := "calls " + s.Service
		if s.Topic != "" {
			what = fmt.Sprintf("publishes %s to topic %s", s.Message, s.Topic)
		}
		p.Printf("%s: schedule %s: %q in %s, %s\n", file, s.ID, s.Cron, s.TimeZone, what)
	}
}

// Subscription describes one in words.
func Subscription(s *lint.Subscription) string {
	text := fmt.Sprintf("of %s, ", s.Topic)
	if s.Service == "" {
		text += "to pull"
	} else {
		text += "pushes to " + s.Service
	}
	text += fmt.Sprintf(", deadline %s, kept %s", s.AckDeadline, days(s.Retention))
	if s.MaxBackoff > 0 {
		text += fmt.Sprintf(", again after %s to %s", s.MinBackoff, s.MaxBackoff)
	}
	if s.MaxAttempts > 0 {
		text += fmt.Sprintf(", %d attempts, then to %s", s.MaxAttempts, s.DeadLetterTopic)
	}
	if s.Ordered {
		text += ", ordered"
	}
	return text
}

// days prints a time that messages are kept.
func days(d lint.Duration) string {
	const day = 24 * time.Hour
	if t := time.Duration(d); t >= day && t%day == 0 {
		return terminal.Plural(int(t/day), "day")
	}
	return terminal.Plural(int(time.Duration(d).Minutes()), "minute")
}
