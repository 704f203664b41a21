// Command features writes docs/features.md: what this product answers to each feature of the reference system and to each public issue, a test or a
// stated reason, so that nobody has to believe a claim. The rows stand in docs/features.yaml and in the issue table of docs/protocol.md; the answers
// are comment lines above tests:
//
//	// covers: SNK-03, FAIL-10
//	// issue-row: 17
//
// Its test guarantees that the file is current, that every line names a row that exists, and that no row has both a test and a reason. Run it
// anywhere in the repository:
//
//	go run ./internal/features
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	catalogueFile = "docs/features.yaml"
	issuesFile    = "docs/protocol.md"
	outputFile    = "docs/features.md"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "features:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	page, err := generate(os.DirFS(root))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(outputFile)), page, 0o644)
}

// generate returns the page for the repository at root, or all that is wrong with its rows and lines.
func generate(root fs.FS) ([]byte, error) {
	c, err := loadCatalogue(root)
	if err != nil {
		return nil, err
	}
	ties, err := scan(root)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(check(c, ties)...); err != nil {
		return nil, err
	}
	return render(c, ties), nil
}

// moduleRoot is the nearest directory at or above the working directory that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above: run it inside the repository")
		}
		dir = parent
	}
}
