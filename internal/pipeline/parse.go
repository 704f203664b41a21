package pipeline

import (
	"slices"
	"strings"
)

// Options are what a deployment says beside the file.
type Options struct {
	File     string // the name that errors give
	Project  string // BIGTABLE_PROJECT: replaces bigtable.project where not empty
	Instance string // BIGTABLE_INSTANCE: replaces bigtable.instance where not empty
}

// Parse reads a pipeline file. The error is an Errors and holds every fault that
// is provable without compiling expressions.
func Parse(data []byte, o Options) (*Pipeline, error) {
	p, err := Draft(data, o)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// read decodes the document, or returns nil where there is none to look at. The second
// result is the Doubts of the Pipeline.
func read(data []byte, file string, errs *faults) (*document, Errors) {
	s := newSource(file, data)
	root := readYAML(s, data, errs)
	if root == nil {
		return nil, nil
	}
	d := &decoder{checker: checker{source: s, errs: errs, bad: badNodes{}}}
	d.check(root, "")
	var doc document
	d.value(root, reflectOf(&doc), "", field{})
	if !doc.ok() {
		return nil, nil
	}
	return &doc, d.doubts.list
}

// builder makes a Pipeline of a document, and reports what only shows when its
// parts are put together. A part that the decoder reported is passed over.
type builder struct {
	errs    *faults
	options Options
	p       Pipeline
	docs    map[*Table]*tableDoc
	project string // bigtable.project

	// For Draft.
	unsure   map[*Table]bool            // what the table declares may not be what is meant
	unplaced map[*Mutation][]Assignment // cells of families that cannot be written
}

func (b *builder) fail(a at, format string, args ...any) {
	b.errs.add(a.pos, a.place, format, args...)
}

// faultAt reports whether a fault was found at a place itself.
func (b *builder) faultAt(place string) bool {
	return slices.ContainsFunc(b.errs.list, func(e *Error) bool { return e.Place == place })
}

// faulty reports whether a fault was found at a place or below it.
func (b *builder) faulty(place string) bool {
	for _, e := range b.errs.list {
		rest, below := strings.CutPrefix(e.Place, place)
		if below && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

func (b *builder) pipeline(doc *document) {
	b.p.Name = doc.Name.v
	b.project = doc.Bigtable.Project.v
	b.p.CredentialsFile = doc.CredentialsFile.v
	if doc.CredentialsFile.ok() && doc.CredentialsFile.v == "" {
		b.fail(doc.CredentialsFile.at, "an empty path: leave the field out for application default credentials")
	}
	if strings.HasPrefix(doc.Name.v, "goog") {
		b.fail(doc.Name.at, "%q starts with goog, which Pub/Sub keeps for itself", doc.Name.v)
	}
	b.tables(doc)
	if doc.Write != nil && doc.Write.ok() {
		b.write(doc.Write)
	}
	for i := range doc.Scans.entries {
		b.scan(&doc.Scans.entries[i])
	}
	for i := range doc.Changes.entries {
		b.change(&doc.Changes.entries[i])
	}
	for i := range doc.Tests {
		b.test(&doc.Tests[i])
	}
	if doc.Write == nil && !doc.Scans.given() && !doc.Changes.given() && len(b.errs.list) == 0 {
		b.fail(doc.at, "the file does nothing: it needs write, scans or changes")
	}
}
