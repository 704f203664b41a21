package pipeline

import (
	"fmt"
	"strconv"
	"strings"
)

// cronField is one of the five fields that Cloud Scheduler takes, with its bounds
// and names.
type cronField struct {
	what      string
	low, high int
	names     []string // of low, low+1, …
}

var cronFields = []cronField{
	{what: "minute", low: 0, high: 59},
	{what: "hour", low: 0, high: 23},
	{what: "day of month", low: 1, high: 31},
	{what: "month", low: 1, high: 12, names: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{what: "day of week", low: 0, high: 7, names: strings.Fields("sun mon tue wed thu fri sat")},
}

// checkCron checks the form of a schedule: five fields, each a list of *, numbers,
// names and ranges, with or without a step.
func checkCron(s string) error {
	fields := strings.Fields(s)
	if len(fields) != len(cronFields) {
		return fmt.Errorf("%q has %d fields: a schedule has five, as in \"0 3 * * *\" for three o'clock every day", s, len(fields))
	}
	for i, f := range cronFields {
		for _, part := range strings.Split(fields[i], ",") {
			if err := f.check(part); err != nil {
				return fmt.Errorf("%q is no %s: %w", fields[i], f.what, err)
			}
		}
	}
	if !everDue(fields) {
		return fmt.Errorf("%q is never due: no month of it has such a day", s)
	}
	return nil
}

// longest are the days that a month has at most.
var longest = []int{1: 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// everDue reports whether some month of a schedule has one of its days. As in cron, a day
// of the week suffices where both fields of days are restricted.
func everDue(fields []string) bool {
	if !strings.HasPrefix(fields[4], "*") {
		return true
	}
	for month := 1; month <= 12; month++ {
		for day := 1; cronFields[3].has(fields[3], month) && day <= longest[month]; day++ {
			if cronFields[2].has(fields[2], day) {
				return true
			}
		}
	}
	return false
}

// has reports whether a number is in a field that was checked.
func (f cronField) has(field string, n int) bool {
	for part := range strings.SplitSeq(field, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		low, high, step := f.low, f.high, 1
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			low, _ = f.number(first)
			switch {
			case ranged:
				high, _ = f.number(last)
			case !stepped:
				high = low
			}
		}
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		if n >= low && n <= high && (n-low)%step == 0 {
			return true
		}
	}
	return false
}

func (f cronField) check(part string) error {
	span, step, stepped := strings.Cut(part, "/")
	if stepped {
		if n, err := strconv.Atoi(step); err != nil || n < 1 || n > f.high {
			return fmt.Errorf("a step is 1 to %d", f.high)
		}
	}
	if span == "*" {
		return nil
	}
	first, last, ranged := strings.Cut(span, "-")
	low, err := f.number(first)
	if err != nil || !ranged {
		return err
	}
	high, err := f.number(last)
	if err == nil && low > high {
		return fmt.Errorf("a range goes upwards")
	}
	return err
}

func (f cronField) number(s string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(s, name) {
			return f.low + i, nil
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < f.low || n > f.high || s[0] == '+' {
		return 0, fmt.Errorf("write * or %d to %d", f.low, f.high)
	}
	return n, nil
}
