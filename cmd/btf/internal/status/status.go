// Package status says how far the scans and change streams of a pipeline are, for btf status. It
// guarantees that it changes nothing of a ledger and makes none, and that the text and the JSON
// that it prints are of the same moment.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/devledger"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/streamstatus"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Config says of which pipeline the status is read, and how.
type Config struct {
	Env  assemble.Env
	File string // of the pipeline
	// All adds the splits of scans that are finished, and prints every split and partition.
	All bool
	Now func() time.Time
	// Notices takes a line if a ledger does not answer at once.
	Notices io.Writer
	// Patience is how long a ledger is waited for. Zero is as long as all commands wait.
	Patience terminal.Patience
}

// Report is what the ledgers of a pipeline know. As JSON its fields are a contract.
type Report struct {
	Pipeline string   `json:"pipeline"`
	Ledgers  []Ledger `json:"ledgers"` // that of a btf dev that runs here comes first

	file     string
	all      bool
	hasScans bool // in the file
}

// Ledger is what one ledger knows.
type Ledger struct {
	Place   string                `json:"ledger"` // as LEDGER names it
	Exists  bool                  `json:"exists"`
	Scans   []Scan                `json:"scans"`   // the newest first
	Changes []streamstatus.Stream `json:"changes"` // in the order of the file

	at time.Time // when it was read
}

// Scan is one scan.
type Scan struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"` // empty if its request named none
	State     string    `json:"state"`
	Splits    int       `json:"splits"`
	Done      int       `json:"done"` // of the splits
	Rows      int64     `json:"rows"`
	Records   int64     `json:"records"`
	Dropped   int64     `json:"dropped"`
	Error     string    `json:"error,omitempty"`
	CreatedAt time.Time `json:"createdAt"`

	stopped bool            // a command has begun it, and none goes on with it
	ended   string          // why the command that has stopped ended; may be empty
	listed  []*ledger.Split // none of a scan that is finished, unless all are asked for
}

// Read reads the ledgers of a pipeline: that of LEDGER or the default one and, if LEDGER is unset
// and a btf dev runs in this directory, before it the ledger of that.
func Read(ctx context.Context, cfg Config) (*Report, error) {
	p, err := setup.ParseFile(cfg.Env, cfg.File)
	if err != nil {
		return nil, err
	}
	envs := []assemble.Env{cfg.Env}
	if cfg.Env.Ledger == (ledger.Location{}) {
		dev, err := devledger.Running(p.Name)
		if err != nil {
			return nil, err
		}
		if dev != (ledger.Location{}) {
			beside := cfg.Env
			beside.Ledger = dev
			envs = []assemble.Env{beside, cfg.Env}
		}
	}
	report := &Report{Pipeline: p.Name, file: cfg.File, all: cfg.All, hasScans: len(p.Scans) > 0}
	for _, env := range envs {
		one := cfg
		one.Env = env
		l, err := readLedger(ctx, one, p)
		if err != nil {
			return nil, err
		}
		report.Ledgers = append(report.Ledgers, l)
	}
	return report, nil
}

// PrintJSON prints the report as one object, without the splits.
func (r *Report) PrintJSON(stdout io.Writer) error {
	if err := json.NewEncoder(terminal.DataTo(stdout)).Encode(r); err != nil {
		return fmt.Errorf("printing the status: %w", err)
	}
	return nil
}
