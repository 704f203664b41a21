package assemble

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Names of the environment variables that Env holds, beside btrpc.EmulatorVariable and btrpc.PrincipalVariable.
const (
	ProjectVariable           = "BIGTABLE_PROJECT"
	InstanceVariable          = "BIGTABLE_INSTANCE"
	PubSubProjectVariable     = "PUBSUB_PROJECT"
	LedgerVariable            = "LEDGER"
	PubSubEmulatorVariable    = "PUBSUB_EMULATOR_HOST"    // Google's clients read it, too
	FirestoreEmulatorVariable = "FIRESTORE_EMULATOR_HOST" // Google's client reads it, too
)

// Env is what every program of this repository reads from its environment. A program
// reads it once, at its start. An empty field is a variable that is not set.
type Env struct {
	// Project and Instance are the defaults of a pipeline file that names none.
	Project, Instance string
	// PubSubProject is the project of the pipeline's topics, if it is not that of its tables.
	PubSubProject string
	// Ledger is the place of the ledger.
	Ledger ledger.Location
	// The addresses of emulators are HOST:PORT. That of Bigtable may have a scheme.
	BigtableEmulator, PubSubEmulator, FirestoreEmulator string
	// BigtablePrincipal is who calls the emulator of Bigtable, for its IAM policies.
	BigtablePrincipal string
}

// ReadEnv reads the variables with get and checks them. The error names each variable that
// has a wrong value.
func ReadEnv(get func(string) string) (Env, error) {
	e := Env{
		Project: get(ProjectVariable), Instance: get(InstanceVariable), PubSubProject: get(PubSubProjectVariable),
		BigtableEmulator: get(btrpc.EmulatorVariable), PubSubEmulator: get(PubSubEmulatorVariable), FirestoreEmulator: get(FirestoreEmulatorVariable),
		BigtablePrincipal: get(btrpc.PrincipalVariable),
	}
	errs := []error{
		checkAddress(btrpc.EmulatorVariable, e.BigtableEmulator),
		checkAddress(PubSubEmulatorVariable, e.PubSubEmulator),
		checkAddress(FirestoreEmulatorVariable, e.FirestoreEmulator),
	}
	if place := get(LedgerVariable); place != "" {
		var err error
		e.Ledger, err = ledger.ParseLocation(place)
		errs = append(errs, err)
	}
	return e, errors.Join(errs...)
}

func checkAddress(variable, value string) error {
	if value == "" {
		return nil
	}
	address := value[strings.LastIndex(value, "/")+1:] // a scheme is allowed
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("%s=%s: want HOST:PORT, as in localhost:8086", variable, value)
	}
	return nil
}

// PipelineOptions are the options with which a pipeline file of this name is read.
func (e *Env) PipelineOptions(file string) pipeline.Options {
	return pipeline.Options{File: file, Project: e.Project, Instance: e.Instance}
}

// TopicsProject is the project of the pipeline's topics: PUBSUB_PROJECT, BIGTABLE_PROJECT or
// the project of the first table, in this order.
func (e *Env) TopicsProject(p *pipeline.Pipeline) string {
	switch {
	case e.PubSubProject != "":
		return e.PubSubProject
	case e.Project != "":
		return e.Project
	}
	return p.Tables[0].Project
}
