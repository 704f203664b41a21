package demo

import (
	"bytes"

	"github.com/bigtable-functions/bigtable-functions/examples"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// flights are the example: its pipeline, its events and the rows that they make.
type flights struct {
	*lint.Loaded
	text   []byte // of the file
	events [][]byte
	rows   map[string]cells
}

func loadFlights() (*flights, error) {
	file, err := examples.Flights.ReadFile("flights/pipeline.yaml")
	if err != nil {
		return nil, err
	}
	loaded, findings := lint.Load(file, pipeline.Options{File: "examples/flights/pipeline.yaml"})
	if err := findings.Err(); err != nil {
		return nil, err
	}
	data, err := examples.Flights.ReadFile("flights/flights.ndjson")
	if err != nil {
		return nil, err
	}
	f := &flights{Loaded: loaded, text: file, events: bytes.Split(bytes.TrimSpace(data), []byte("\n"))}
	f.rows, err = expectedRows(loaded.Pipeline, f.events)
	return f, err
}
