package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// catalogue is what must be answered.
type catalogue struct {
	Sections []section
	Issues   []issue // in the order of the table
}

type section struct {
	Title string
	Rows  []row
}

// isReason reports whether a reason begins with one of the reasons and does not end there.
func isReason(reason string) bool {
	return slices.ContainsFunc(reasons, func(kind string) bool { return strings.HasPrefix(reason, kind) && reason != kind })
}

// row is one feature of the reference system.
type row struct {
	ID, Title string
	// Exact says what differs from the reference in numbers or form, of a row that a
	// test answers or is to answer; "as the reference" where nothing does.
	Exact string
	// Reason says why no test answers it, and begins with one of the reasons.
	Reason string
}

// reasons are the beginnings of a reason: the feature is to come, it will not come, or it is
// answered otherwise than by a test.
var reasons = []string{next, notApplicable, elsewhere}

const (
	next          = "next: "
	notApplicable = "not applicable: "
	elsewhere     = "elsewhere: "
)

// issue is one row of the public-issue table.
type issue struct {
	Number          int
	Ref, Title      string
	Outcome, Reason string
}

var (
	idPattern = regexp.MustCompile(`^[A-Z]+-\d\d$`)
	// issueLine is a row of the table: number, reference, symptom or cause, test.
	issueLine = regexp.MustCompile(`^\| (\d+) \| (.+) \| (.+) \| (.+) \|$`)
)

const issuesHeading = "## Public issues"

// loadCatalogue reads the rows and the reasons. Everything that is wrong with them is reported.
func loadCatalogue(root fs.FS) (catalogue, error) {
	var doc struct {
		Sections []section
		Issues   []struct {
			Row    int
			Reason string
		}
	}
	data, err := fs.ReadFile(root, catalogueFile)
	if err != nil {
		return catalogue{}, err
	}
	if err := yaml.Load(data, &doc, yaml.WithKnownFields()); err != nil {
		return catalogue{}, fmt.Errorf("%s: %w", catalogueFile, err)
	}
	page, err := fs.ReadFile(root, issuesFile)
	if err != nil {
		return catalogue{}, err
	}
	c := catalogue{Sections: doc.Sections, Issues: parseIssues(string(page))}
	errs := checkRows(c)
	for _, r := range doc.Issues {
		is := c.issue(r.Row)
		switch {
		case is == nil:
			errs = append(errs, fmt.Errorf("%s: issue row %d is not in %s", catalogueFile, r.Row, issuesFile))
		case r.Reason == "" || is.Reason != "":
			errs = append(errs, fmt.Errorf("%s: issue row %d: want one reason", catalogueFile, r.Row))
		case !isReason(r.Reason):
			errs = append(errs, fmt.Errorf("%s: issue row %d: a reason begins with one of %q", catalogueFile, r.Row, reasons))
		default:
			is.Reason = r.Reason
		}
	}
	return c, errors.Join(errs...)
}

// parseIssues reads the table under the heading of public issues.
func parseIssues(page string) []issue {
	_, rest, _ := strings.Cut(page, "\n"+issuesHeading+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	var out []issue
	for line := range strings.Lines(rest) {
		m := issueLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			continue // a number no table has
		}
		out = append(out, issue{Number: n, Ref: m[2], Title: m[3], Outcome: m[4]})
	}
	return out
}

func checkRows(c catalogue) (errs []error) {
	if len(c.Issues) == 0 {
		errs = append(errs, fmt.Errorf("%s has no table under %q", issuesFile, issuesHeading))
	}
	seen := map[string]bool{}
	for _, s := range c.Sections {
		for _, r := range s.Rows {
			switch {
			case !idPattern.MatchString(r.ID):
				errs = append(errs, fmt.Errorf("%s: id %q is not of the form ABC-12", catalogueFile, r.ID))
			case r.Title == "":
				errs = append(errs, fmt.Errorf("%s: %s has no title", catalogueFile, r.ID))
			case seen[r.ID]:
				errs = append(errs, fmt.Errorf("%s: %s stands twice", catalogueFile, r.ID))
			case (r.Exact == "") == (r.Reason == ""):
				errs = append(errs, fmt.Errorf("%s: %s: want either exact, what differs from the reference, or a reason for having no test", catalogueFile, r.ID))
			case r.Reason != "" && !isReason(r.Reason):
				errs = append(errs, fmt.Errorf("%s: %s: a reason begins with one of %q", catalogueFile, r.ID, reasons))
			}
			seen[r.ID] = true
		}
	}
	return errs
}

// issue returns the row with that number, nil where there is none.
func (c catalogue) issue(number int) *issue {
	for i := range c.Issues {
		if c.Issues[i].Number == number {
			return &c.Issues[i]
		}
	}
	return nil
}

// rows maps ids to rows.
func (c catalogue) rows() map[string]row {
	out := map[string]row{}
	for _, s := range c.Sections {
		for _, r := range s.Rows {
			out[r.ID] = r
		}
	}
	return out
}
