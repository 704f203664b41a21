package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// tie says that a test answers rows.
type tie struct {
	File string // slash-separated, relative to the repository
	Line int    // of the comment
	Test string // how it is called: package.TestName, or the name of a script
	Kind string // covers or issue-row
	Rows []string
}

// conformance holds scripts of other languages that count as tests, each as one.
const conformance = "emulator/conformance"

var (
	goTie     = regexp.MustCompile(`^//\s*(covers|issue-row):(.*)$`)
	scriptTie = regexp.MustCompile(`^\s*(?:#|//|--)\s*(covers|issue-row):(.*)$`)
	testName  = regexp.MustCompile(`^(Test|Fuzz|Example|Benchmark)`)
	rowNumber = regexp.MustCompile(`^[1-9]\d*$`)
)

// scan finds the ties of all tests, by file and within it by line.
func scan(root fs.FS) ([]tie, error) {
	var ties []tie
	var errs []error
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		var found []tie
		switch {
		case strings.HasSuffix(name, "_test.go"):
			found, err = scanGo(root, name)
		case strings.HasPrefix(name, conformance+"/"):
			found, err = scanScript(root, name)
		}
		ties, errs = append(ties, found...), append(errs, err)
		return nil
	})
	return ties, errors.Join(append(errs, err)...)
}

// scanGo finds the ties of a Go file: each must stand right above a test or inside it.
func scanGo(root fs.FS, name string) ([]tie, error) {
	src, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var ties []tie
	var errs []error
	for _, group := range file.Comments {
		for _, c := range group.List {
			m := goTie.FindStringSubmatch(c.Text)
			if m == nil {
				continue
			}
			test := testAround(file, c)
			if test == "" {
				errs = append(errs, fmt.Errorf("%s: a %s line that is neither above a test nor inside one", fset.Position(c.Pos()), m[1]))
				continue
			}
			pkg := strings.TrimSuffix(file.Name.Name, "_test")
			t, err := newTie(name, fset.Position(c.Pos()).Line, pkg+"."+test, m[1], m[2])
			ties, errs = append(ties, t), append(errs, err)
		}
	}
	return ties, errors.Join(errs...)
}

// testAround names the test to whose comment or body c belongs, "" where there is none.
func testAround(file *ast.File, c *ast.Comment) string {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !testName.MatchString(f.Name.Name) {
			continue
		}
		from := f.Pos()
		if f.Doc != nil {
			from = f.Doc.Pos()
		}
		if from <= c.Pos() && c.Pos() < f.End() {
			return f.Name.Name
		}
	}
	return ""
}

// scanScript finds the ties of a script, anywhere in it.
func scanScript(root fs.FS, name string) ([]tie, error) {
	src, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	var ties []tie
	var errs []error
	line := 0
	for text := range bytes.Lines(src) {
		line++
		m := scriptTie.FindSubmatch(bytes.TrimRight(text, "\r\n"))
		if m == nil {
			continue
		}
		t, err := newTie(name, line, path.Base(name), string(m[1]), string(m[2]))
		ties, errs = append(ties, t), append(errs, err)
	}
	return ties, errors.Join(errs...)
}

// newTie parses the rows that a line names, separated by commas.
func newTie(file string, line int, test, kind, list string) (tie, error) {
	t := tie{File: file, Line: line, Test: test, Kind: kind}
	pattern := idPattern
	if kind == "issue-row" {
		pattern = rowNumber
	}
	var errs []error
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if !pattern.MatchString(item) {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %q is no row; write them out, separated by commas", file, line, kind, item))
			continue
		}
		t.Rows = append(t.Rows, item)
	}
	return t, errors.Join(errs...)
}
