package task

import (
	"errors"
	"fmt"
	"slices"
)

// Changes names partitions of a change stream that one invocation is to read. It is a hint:
// the ledger has the holder and the position of each partition.
type Changes struct {
	Version    int      `json:"v"`
	Stream     string   `json:"stream"`     // the name in the pipeline file
	Partitions []string `json:"partitions"` // incarnations, in the order in which they are to be read
}

// DecodeChanges reads a task.
func DecodeChanges(data []byte) (Changes, error) {
	var c Changes
	if err := decode(data, &c, &c.Version); err != nil {
		return c, fmt.Errorf("reading a task of a change stream: %w", err)
	}
	if c.Stream == "" || len(c.Partitions) == 0 || slices.Contains(c.Partitions, "") {
		return c, errors.New("reading a task of a change stream: the stream or a partition is missing")
	}
	return c, nil
}
