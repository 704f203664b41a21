package ledger

import (
	"fmt"
	"strings"
)

// Location says where a ledger is kept: in a Firestore database or in a file.
type Location struct {
	Project, Database string // of Firestore; the default database is called (default)
	Path              string // of the file; empty: Firestore
}

// ParseLocation reads the value of the LEDGER variable: firestore:PROJECT/DATABASE
// or file:PATH.
func ParseLocation(s string) (Location, error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "file":
		if rest != "" {
			return Location{Path: rest}, nil
		}
	case "firestore":
		// A project may have its domain before it, as in example.com:project.
		project, database, _ := strings.Cut(rest, "/")
		if project != "" && database != "" && !strings.Contains(database, "/") {
			return Location{Project: project, Database: database}, nil
		}
	}
	return Location{}, fmt.Errorf("LEDGER %q: want firestore:PROJECT/DATABASE, as in firestore:my-project/(default), or file:PATH", s)
}

// String returns what ParseLocation reads.
func (l Location) String() string {
	if l.Path != "" {
		return "file:" + l.Path
	}
	return "firestore:" + l.Project + "/" + l.Database
}
