package setup

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/api/option"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// opener is OpenLedger or ReadLedger.
type opener = func(context.Context, assemble.Env, *pipeline.Pipeline, ...option.ClientOption) (*ledger.Ledger, func() error, error)

// Both commands and the functions reach the ledger as the service account of the pipeline file,
// whatever the environment has.
//
// covers: CRED-02
func TestTheCredentialsFileReachesTheLedger(t *testing.T) {
	const account = "file@p.iam.gserviceaccount.com"
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", functest.KeyFile(t, "default@p.iam.gserviceaccount.com"))
	p := &pipeline.Pipeline{Name: "orders", CredentialsFile: functest.KeyFile(t, account)}
	// The ledger may be in Firestore though the tables are in an emulator.
	env := assemble.Env{Ledger: ledger.Location{Project: "p", Database: "(default)"}, BigtableEmulator: "localhost:1"}
	for name, open := range map[string]opener{"btf scan": OpenLedger, "btf status": ReadLedger} {
		google := functest.NewGoogle(t)
		l, closer, err := open(t.Context(), env, p, google.Options()...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := l.Scan(t.Context(), "ids-1"); err == nil {
			t.Errorf("%s: the scan is there", name)
		}
		if got := google.Caller("BatchGetDocuments"); got != account {
			t.Errorf("%s reads the ledger as %q, want %q", name, got, account)
		}
		if err := closer(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACredentialsFileThatCannotBeUsedIsRefused(t *testing.T) {
	inFirestore := assemble.Env{Ledger: ledger.Location{Project: "p", Database: "(default)"}}
	besideEmulator := inFirestore
	besideEmulator.FirestoreEmulator = "localhost:1"
	for want, c := range map[string]struct {
		env  assemble.Env
		file string
	}{
		"the file cannot be read":                                  {inFirestore, filepath.Join(t.TempDir(), "key.json")},
		"credentialsFile and FIRESTORE_EMULATOR_HOST are both set": {besideEmulator, functest.KeyFile(t, "file@p.iam.gserviceaccount.com")},
	} {
		_, _, err := ReadLedger(t.Context(), c.env, &pipeline.Pipeline{Name: "orders", CredentialsFile: c.file})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "key.json") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
