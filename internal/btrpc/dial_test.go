package btrpc

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/internal/functest"
)

func TestAnEmulatorIsReachedWithOrWithoutAScheme(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	bigtablepb.RegisterBigtableServer(g, &server{mutateRows: func(_ *bigtablepb.MutateRowsRequest, s grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error {
		return s.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Index: 0}}})
	}})
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	defer func() { g.Stop(); <-done }()
	for _, scheme := range []string{"", "http://", "https://"} {
		d, err := NewDialer(DialConfig{Emulator: scheme + l.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		cc, err := d.Data(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, 1)
		if attempt(t, cc, rows(1), nil, errs); errs[0] != nil {
			t.Errorf("%q: %v", scheme, errs[0])
		}
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// covers: CRED-04
func TestACredentialsFileIsNeverQuoted(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"not-json":     "secret-material",
		"unknown-type": `{"type": "secret-material"}`,
		"bad-key":      `{"type": "service_account", "private_key": "secret-material", "client_email": "a@b", "token_uri": "http://x"}`,
		"absent":       "",
	} {
		path := filepath.Join(dir, name+".json")
		if content != "" {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := NewDialer(DialConfig{CredentialsFile: path})
		if err == nil {
			// The key of a service account is parsed when the first token is made.
			if name != "bad-key" {
				t.Errorf("%s: accepted", name)
			}
			continue
		}
		if s := err.Error(); strings.Contains(s, "secret-material") || strings.Contains(s, dir) || !strings.Contains(s, "credentialsFile") {
			t.Errorf("%s: %q", name, s)
		}
	}
}

// Whoever connects, does so as the service account of the file, which is read once.
//
// covers: CRED-02, CRED-03, CRED-06
func TestOneCredentialsFileServesDataAndAdministration(t *testing.T) {
	google := functest.NewGoogle(t)
	path := functest.KeyFile(t, "file@p.iam.gserviceaccount.com")
	d, err := NewDialer(DialConfig{CredentialsFile: path, Pool: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // it was read
		t.Fatal(err)
	}
	for method, scope := range map[string]string{"MutateRow": dataScope, "CreateTable": adminScope} {
		conn, err := d.dial(t.Context(), google.Addr, scope, 1, google.Trust)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		google.Call(t.Context(), conn, "/any.Service/"+method)
		if got := google.Caller(method); got != "file@p.iam.gserviceaccount.com" {
			t.Errorf("%s was called by %q", method, got)
		}
		if err := conn.Close(); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// Without a file the credentials are those of the environment.
//
// covers: CRED-01
func TestApplicationDefaultCredentialsAreTheDefault(t *testing.T) {
	google := functest.NewGoogle(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", functest.KeyFile(t, "default@p.iam.gserviceaccount.com"))
	for _, file := range []string{"", functest.KeyFile(t, "file@p.iam.gserviceaccount.com")} {
		d, err := NewDialer(DialConfig{CredentialsFile: file})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := d.dial(t.Context(), google.Addr, dataScope, 1, google.Trust)
		if err != nil {
			t.Fatal(err)
		}
		google.Call(t.Context(), conn, "/any.Service/MutateRow")
		want := "default@p.iam.gserviceaccount.com"
		if file != "" {
			want = "file@p.iam.gserviceaccount.com"
		}
		if got := google.Caller("MutateRow"); got != want {
			t.Errorf("called by %q, want %q", got, want)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// covers: CRED-05
func TestCredentialsBesideAnEmulatorAreRefused(t *testing.T) {
	_, err := NewDialer(DialConfig{CredentialsFile: "/nowhere/key.json", Emulator: "localhost:1"})
	if err == nil || !strings.Contains(err.Error(), EmulatorVariable) || strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v", err)
	}
	d, err := NewDialer(DialConfig{CredentialsFile: functest.KeyFile(t, "a@b")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Credentials("PUBSUB_EMULATOR_HOST", "localhost:1"); err == nil || !strings.Contains(err.Error(), "PUBSUB_EMULATOR_HOST") {
		t.Errorf("beside an emulator of Pub/Sub: %v", err)
	}
}
