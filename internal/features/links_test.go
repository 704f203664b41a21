package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

func TestLinksBetweenPagesLead(t *testing.T) {
	root := os.DirFS(repository)
	pages := 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(name) != ".md" {
			return nil
		}
		pages++
		checkLinks(t, root, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages < 4 {
		t.Errorf("only %d pages found", pages)
	}
}

// checkLinks reports the links of a page to files or headings that do not exist.
func checkLinks(t *testing.T, root fs.FS, page string) {
	t.Helper()
	data, err := fs.ReadFile(root, page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(data), ""), -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, ":") {
			continue // another site
		}
		file := page
		if target != "" {
			file = path.Join(path.Dir(page), target)
		}
		if _, err := fs.Stat(root, file); err != nil {
			t.Errorf("%s links to %s, which does not exist", page, m[1])
			continue
		}
		if anchor != "" && !anchors(t, root, file)[anchor] {
			t.Errorf("%s links to %s, but %s has no such heading", page, m[1], file)
		}
	}
}

// anchors are the names that GitHub gives to a page's headings.
func anchors(t *testing.T, root fs.FS, page string) map[string]bool {
	t.Helper()
	data, err := fs.ReadFile(root, page)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(data), ""), -1) {
		out[anchorOf(m[1])] = true
	}
	return out
}

func anchorOf(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

func TestHeadingsBecomeAnchors(t *testing.T) {
	for title, want := range map[string]string{
		"Google's emulators": "googles-emulators", "Order and replays": "order-and-replays", "end_time": "end_time", "Sink (write path)": "sink-write-path",
	} {
		if got := anchorOf(title); got != want {
			t.Errorf("anchor of %q is %q, want %q", title, got, want)
		}
	}
}
