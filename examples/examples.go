// Package examples guarantees that a program which embeds it has the examples of the
// repository, byte for byte.
package examples

import "embed"

// Flights holds the files of examples/flights.
//
//go:embed flights/pipeline.yaml flights/flights.ndjson
var Flights embed.FS
