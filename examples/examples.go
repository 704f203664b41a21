// Package examples guarantees that a program which embeds it has the examples of the
// repository, byte for byte.
package examples

import "embed"

// Flights holds the files of examples/flights.
//
//go:embed flights/pipeline.yaml flights/flights.ndjson
var Flights embed.FS

// Orders holds the files of examples/orders.
//
//go:embed orders/pipeline.yaml orders/messages
var Orders embed.FS

// Earthquakes holds the files of examples/earthquakes.
//
//go:embed earthquakes/pipeline.yaml earthquakes/earthquakes.json
var Earthquakes embed.FS
