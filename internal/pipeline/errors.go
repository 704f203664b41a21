package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one fault of a pipeline file: where it is and what to do about it.
// Its text quotes nothing but the file.
type Error struct {
	Pos     Pos
	Place   string // as in write.mappings[0].rowKey; empty for a fault of the file itself
	Message string
}

// Error returns file:line:column: place: message.
func (e *Error) Error() string {
	if e.Place == "" {
		return e.Pos.String() + ": " + e.Message
	}
	return e.Pos.String() + ": " + e.Place + ": " + e.Message
}

// Errors are all faults of a pipeline file, in the file's order.
type Errors []*Error

// Error returns the faults, one a line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults, so that errors.As finds the first.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// faults collects the Errors of one file.
type faults struct {
	list Errors
	at   map[faultKey]*Error
}

type faultKey struct {
	pos   Pos
	place string
}

// add records a fault. One place of the file has one fault: what follows from
// the first is not said again.
func (fs *faults) add(pos Pos, place, format string, args ...any) {
	key := faultKey{pos, place}
	if fs.at[key] != nil {
		return
	}
	e := &Error{Pos: pos, Place: place, Message: fmt.Sprintf(format, args...)}
	if fs.at == nil {
		fs.at = map[faultKey]*Error{}
	}
	fs.at[key] = e
	fs.list = append(fs.list, e)
}

// amend adds to the message of the fault at a place.
func (fs *faults) amend(a at, more string) {
	if e := fs.at[faultKey{a.pos, a.place}]; e != nil {
		e.Message += more
	}
}

// restate replaces the message of the fault at a place.
func (fs *faults) restate(a at, format string, args ...any) {
	if e := fs.at[faultKey{a.pos, a.place}]; e != nil {
		e.Message = fmt.Sprintf(format, args...)
	}
}

// err returns the faults by position, or nil where there are none.
func (fs *faults) err() error {
	if len(fs.list) == 0 {
		return nil
	}
	slices.SortStableFunc(fs.list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return fs.list
}

// didYouMean returns a hint at the nearest of the names that could have been
// meant, or the list of them where none is near.
func didYouMean(got string, names []string) string {
	switch near := Nearest(got, names); {
	case near != "":
		return fmt.Sprintf("; did you mean %q?", near)
	case len(names) == 0:
		return ""
	}
	return "; use one of " + strings.Join(names, ", ")
}

// Nearest returns the name that was probably meant, "" where none is near.
func Nearest(got string, names []string) string {
	best, distance := "", 3
	for _, name := range names {
		if d := editDistance(strings.ToLower(got), strings.ToLower(name)); d < distance && d*2 <= max(len(name), 2) {
			best, distance = name, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b. Texts of very different length are far apart.
func editDistance(a, b string) int {
	if len(a) > len(b)+8 || len(b) > len(a)+8 {
		return len(a) + len(b)
	}
	s, t := []rune(a), []rune(b)
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(s); i++ {
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}
