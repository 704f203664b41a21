package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Environment variables of this program alone.
const (
	targetVariable       = "FUNCTION_TARGET"
	pipelineVariable     = "PIPELINE"
	pipelineFileVariable = "PIPELINE_FILE"
	portVariable         = "PORT"
	// These two make the functions check the token of a push themselves.
	audienceVariable = "PUSH_AUDIENCE"
	accountVariable  = "PUSH_SERVICE_ACCOUNT"
)

// settings are the values that the process reads from its environment, once, at its start.
type settings struct {
	assemble.Env
	target       string // the function to serve; empty: every function for which there is work
	pipeline     string // the text of the pipeline file
	pipelineFile string // its path, if pipeline is empty
	port         int
	// Whose tokens the functions accept, and for which audience; empty: they check none.
	audience, account string
	revision          string // of the Cloud Run service; empty elsewhere
	project           string // of the traces that log entries name
	// collectLess is set if memory has a limit and nothing says how often it is collected.
	collectLess bool
	metrics     telemetry.Settings
}

// readSettings reads the environment with get. The error names each variable that has a
// wrong value.
func readSettings(get func(string) string) (settings, error) {
	env, err := assemble.ReadEnv(get)
	s := settings{
		Env: env, target: get(targetVariable), pipeline: get(pipelineVariable), pipelineFile: get(pipelineFileVariable),
		audience: get(audienceVariable), account: get(accountVariable),
		revision: get("K_REVISION"), project: get("GOOGLE_CLOUD_PROJECT"),
		collectLess: get("GOMEMLIMIT") != "" && get("GOGC") == "",
	}
	errs := []error{err}
	if s.metrics, err = telemetry.ReadSettings(get); err != nil {
		errs = append(errs, err)
	}
	if s.port, err = strconv.Atoi(cmp.Or(get(portVariable), "8080")); err != nil || s.port < 1 || s.port > 65535 {
		errs = append(errs, fmt.Errorf("%s=%s: want a number from 1 to 65535", portVariable, get(portVariable)))
	}
	switch {
	case s.pipeline != "" && s.pipelineFile != "":
		errs = append(errs, fmt.Errorf("%s and %s are both set: set one", pipelineVariable, pipelineFileVariable))
	case s.pipeline == "" && s.pipelineFile == "":
		errs = append(errs, fmt.Errorf("neither %s (the YAML) nor %s (its path) is set", pipelineVariable, pipelineFileVariable))
	}
	if (s.audience == "") != (s.account == "") {
		errs = append(errs, fmt.Errorf("%s and %s are set together or not at all: a token is checked for both", audienceVariable, accountVariable))
	}
	return s, errors.Join(errs...)
}

// holder is this process in leases: the revision on Cloud Run, and what its instances do not
// share.
func (s *settings) holder() ledger.Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	return ledger.Process{Revision: s.revision, Host: host, PID: os.Getpid()}.Holder()
}
