package scanrun

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// settings is how a scan is run, as the ledger keeps it for those who go on with it.
type settings struct {
	// To is where the records go: an absolute path, - for stdout, or empty for the
	// scan's own sink.
	To string `json:"to,omitempty"`
	// IDs: each line has its record's id.
	IDs bool `json:"ids,omitempty"`
	// Overwrite: what the file held before is not the scan's, and goes before the first
	// record comes.
	Overwrite bool `json:"overwrite,omitempty"`
	// Workers is how many splits are read at a time.
	Workers int `json:"workers,omitempty"`
	// Before is how many records of the scan were acknowledged before this output was
	// begun, and are not in it.
	Before int64 `json:"before,omitempty"`
}

func (s *settings) run(holder ledger.Holder) (ledger.Run, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return ledger.Run{}, fmt.Errorf("keeping how the scan is run: %w", err)
	}
	return ledger.Run{Settings: text, Holder: holder}, nil
}

func settingsOf(run *ledger.Run) (*settings, error) {
	s := &settings{}
	if len(run.Settings) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(run.Settings, s); err != nil {
		return nil, fmt.Errorf("reading how the scan was run before: %w; without --resume the scan begins again", err)
	}
	return s, nil
}

// errElsewhere: since the ledger was looked at, another process has begun a run with another output.
var errElsewhere = errors.New("another process has just begun to write it elsewhere")

// begins returns why a run may not replace another one. seen is the process that ran the scan when
// it was looked at, if one did: a run with another output was decided from that.
func (s *settings) begins(holder, seen ledger.Holder) func(replaced ledger.Run) error {
	return func(replaced ledger.Run) error {
		before, err := settingsOf(&replaced)
		if err != nil {
			return err
		}
		if before.To != s.To && replaced.Holder != "" && replaced.Holder != holder && replaced.Holder != seen {
			return errElsewhere
		}
		return nil
	}
}
