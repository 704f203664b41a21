// Package setup guarantees that the commands read a pipeline file and open its ledger in one way, and
// that an error says how to reach a service that cannot be reached.
package setup

import (
	"fmt"
	"os"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// ParseFile reads a pipeline file for its names. What the file asks for need not compile.
func ParseFile(env assemble.Env, name string) (*pipeline.Pipeline, error) {
	text, err := readFile(name)
	if err != nil {
		return nil, err
	}
	return pipeline.Parse(text, env.PipelineOptions(name))
}

// LoadFile is LoadAll for what needs the file's names alone.
func LoadFile(env assemble.Env, name string) (*pipeline.Pipeline, error) {
	loaded, err := LoadAll(env, name)
	if err != nil {
		return nil, err
	}
	return loaded.Pipeline, nil
}

// LoadAll reads a pipeline file as a function does that serves it, for the project and instance of
// the environment.
func LoadAll(env assemble.Env, name string) (*lint.Loaded, error) {
	text, err := readFile(name)
	if err != nil {
		return nil, err
	}
	loaded, findings := lint.Load(text, env.PipelineOptions(name))
	if err := findings.Err(); err != nil {
		return nil, err
	}
	return loaded, nil
}

func readFile(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the pipeline file: %w", err)
	}
	return text, nil
}

// Unconnected adds to an error how to connect to a service, or to an emulator of it, which the
// variable names.
func Unconnected(err error, variable string) error {
	return fmt.Errorf("%w; `gcloud auth application-default login` makes credentials, and %s=HOST:PORT names an emulator that needs none", err, variable)
}
