package btrpc

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
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

// covers: CRED-02, CRED-03, CRED-06
func TestOneCredentialsFileServesDataAndAdministration(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "p", "private_key_id": "1", "client_email": "a@p.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": "https://oauth2.googleapis.com/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := NewDialer(DialConfig{CredentialsFile: path, Pool: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // it was read
		t.Fatal(err)
	}
	for name, dial := range map[string]func(context.Context) (Conn, error){"data": d.Data, "admin": d.Admin} {
		conn, err := dial(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := conn.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// covers: CRED-05
func TestCredentialsBesideAnEmulatorAreRefused(t *testing.T) {
	_, err := NewDialer(DialConfig{CredentialsFile: "/nowhere/key.json", Emulator: "localhost:1"})
	if err == nil || !strings.Contains(err.Error(), EmulatorVariable) || strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v", err)
	}
}
