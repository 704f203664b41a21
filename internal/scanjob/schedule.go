package scanjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// LastDue returns the last minute after one time and up to another for which the
// schedule is due; zero where there is none. It looks at every minute between them.
func LastDue(s *pipeline.Schedule, after, upTo time.Time) (time.Time, error) {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return time.Time{}, fmt.Errorf("the schedule's time zone: %w", err)
	}
	fields := strings.Fields(s.Cron)
	for t := upTo.Truncate(time.Minute); t.After(after); t = t.Add(-time.Minute) {
		if isDue(fields, t.In(zone)) {
			return t, nil
		}
	}
	return time.Time{}, nil
}

// RunsInAYear returns how often a schedule is due in a year of 365 days that begins on a Thursday, as
// 2026 does. Hours that its time zone skips or repeats are not minded.
func RunsInAYear(s *pipeline.Schedule) int {
	fields := strings.Fields(s.Cron)
	count := func(field string, low, high int) (n int) {
		for i := low; i <= high; i++ {
			if matches(field, i, low, high, nil) {
				n++
			}
		}
		return n
	}
	days := 0
	for t := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); t.Year() == 2026; t = t.AddDate(0, 0, 1) {
		if isDay(fields, t) {
			days++
		}
	}
	return days * count(fields[0], 0, 59) * count(fields[1], 0, 23)
}

// isDue reports whether a minute is one of the schedule's.
func isDue(fields []string, t time.Time) bool {
	return isDay(fields, t) && matches(fields[0], t.Minute(), 0, 59, nil) && matches(fields[1], t.Hour(), 0, 23, nil)
}

// isDay reports whether a day is one of the schedule's. As in cron, one of the two day fields
// suffices where neither is *.
func isDay(fields []string, t time.Time) bool {
	day, weekday := matches(fields[2], t.Day(), 1, 31, nil), matches(fields[4], int(t.Weekday()), 0, 7, weekdays)
	days := day && weekday
	if !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*") {
		days = day || weekday
	}
	return days && matches(fields[3], int(t.Month()), 1, 12, months)
}

var (
	months   = strings.Fields("- jan feb mar apr may jun jul aug sep oct nov dec")
	weekdays = strings.Fields("sun mon tue wed thu fri sat")
)

// matches reports whether a number is in a field of a schedule that was checked when
// the file was loaded. The number 7 is a Sunday too.
func matches(field string, n, low, high int, names []string) bool {
	for part := range strings.SplitSeq(field, ",") {
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
	if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(s, name) }); i >= 0 {
		return i
	}
	n, _ := strconv.Atoi(s)
	return n
}
