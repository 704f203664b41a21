package task

import (
	"errors"
	"fmt"
	"slices"
)

// Changes is partitions of a change stream to be read, in one invocation. It is a hint:
// who holds a partition and where it stands, the ledger says.
type Changes struct {
	Version    int      `json:"v"`
	Stream     string   `json:"stream"`     // the name in the pipeline file
	Partitions []string `json:"partitions"` // incarnations, those to be read first at first
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
