package scanplanner

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// scheduledID names a scheduled scan by the time for which it was due, so that two
// requests for one due time are one scan. Cloud Scheduler does not put that time into a
// message: it is the last one that the schedule has up to the message's publishing.
func scheduledID(p *pipeline.Pipeline, name string, m push.Message) (string, error) {
	i := slices.IndexFunc(p.Scans, func(s *pipeline.Scan) bool { return s.Name == name })
	if i < 0 || p.Scans[i].Schedule == nil {
		return m.ID, errors.New("the request is a schedule's, and the pipeline has no scan of this name with one")
	}
	due, err := lastDue(*p.Scans[i].Schedule, m.PublishTime)
	if err != nil {
		return m.ID, err
	}
	return name + "@" + due.UTC().Format("2006-01-02T15:04Z"), nil
}

// lookBack is how long after its due time a request may be published: Cloud Scheduler
// retries a job for an hour at most by the settings that are deployed with this.
const lookBack = 24 * time.Hour

// lastDue returns the last minute up to now for which the schedule is due; where there
// is none for long, the job was started by hand, now.
func lastDue(s pipeline.Schedule, now time.Time) (time.Time, error) {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return time.Time{}, fmt.Errorf("the schedule's time zone: %w", err)
	}
	fields := strings.Fields(s.Cron)
	minute := now.Truncate(time.Minute)
	for t := minute; now.Sub(t) < lookBack; t = t.Add(-time.Minute) {
		if isDue(fields, t.In(zone)) {
			return t, nil
		}
	}
	return minute, nil
}

// isDue reports whether a minute is one of the schedule's. As in cron, one of the two
// day fields suffices where neither is *.
func isDue(fields []string, t time.Time) bool {
	day, weekday := matches(fields[2], t.Day(), 1, 31, nil), matches(fields[4], int(t.Weekday()), 0, 7, weekdays)
	days := day && weekday
	if !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*") {
		days = day || weekday
	}
	return days && matches(fields[0], t.Minute(), 0, 59, nil) && matches(fields[1], t.Hour(), 0, 23, nil) &&
		matches(fields[3], int(t.Month()), 1, 12, months)
}

var (
	months   = strings.Fields("- jan feb mar apr may jun jul aug sep oct nov dec")
	weekdays = strings.Fields("sun mon tue wed thu fri sat")
)

// matches reports whether a number is in a field of a schedule that was checked when
// the file was loaded. The number 7 is a Sunday too.
func matches(field string, n, low, high int, names []string) bool {
	for _, part := range strings.Split(field, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		from, to, step := low, high, 1
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			from = number(first, names)
			to = from
			if ranged {
				to = number(last, names)
			} else if stepped {
				to = high
			}
		}
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		for _, m := range []int{n, n + high} {
			if (m == n || high == 7 && n == 0) && m >= from && m <= to && (m-from)%step == 0 {
				return true
			}
		}
	}
	return false
}

func number(s string, names []string) int {
	for i, name := range names {
		if strings.EqualFold(s, name) {
			return i
		}
	}
	n, _ := strconv.Atoi(s)
	return n
}
