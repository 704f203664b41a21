package pipeline

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// brokenFile is a file with one fault, which its first line describes.
type brokenFile struct {
	name         string
	data         []byte
	line, column int
	shape        bool // a schema sees it
	fragment     string
}

var brokenHeader = regexp.MustCompile(`^# (\d+):(\d+) (shape|meaning): (.+)$`)

func brokenFiles(t *testing.T) []brokenFile {
	t.Helper()
	paths, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var files []brokenFile
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(data), "\n")
		m := brokenHeader.FindStringSubmatch(first)
		if m == nil {
			t.Fatalf("%s: the first line says no fault: %s", path, first)
		}
		line, _ := strconv.Atoi(m[1])
		column, _ := strconv.Atoi(m[2])
		files = append(files, brokenFile{filepath.Base(path), data, line, column, m[3] == "shape", m[4]})
	}
	return files
}

// covers: SC-13, SQL-29, TBL-18
func TestEachBrokenFileIsReportedAtItsFault(t *testing.T) {
	files := brokenFiles(t)
	if len(files) < 40 {
		t.Fatalf("%d files, want at least 40", len(files))
	}
	for _, f := range files {
		t.Run(f.name, func(t *testing.T) {
			_, err := Parse(f.data, Options{File: f.name})
			var errs Errors
			if !errors.As(err, &errs) {
				t.Fatalf("Parse gave %v, want Errors", err)
			}
			if len(errs) != 1 {
				t.Fatalf("%d faults, want one:\n%v", len(errs), err)
			}
			want := Pos{f.name, f.line, f.column}
			if errs[0].Pos != want || !strings.Contains(errs[0].Message, f.fragment) {
				t.Errorf("got  %v\nwant %v: … %s …", errs[0], want, f.fragment)
			}
		})
	}
}
