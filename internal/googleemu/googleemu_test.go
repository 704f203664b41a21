package googleemu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func TestBigtableEmulatorKnowsNoTable(t *testing.T) {
	client := bigtablepb.NewBigtableClient(dial(t, Start(t, "bigtable")))
	_, err := client.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{
		TableName: "projects/p/instances/i/tables/absent", RowKey: []byte("k"),
		Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}},
	})
	if status.Code(err) != codes.NotFound {
		t.Fatalf("a write to a table that does not exist: %v, want NotFound", err)
	}
}

func TestFirestoreEmulatorKeepsADocument(t *testing.T) {
	client := firestorepb.NewFirestoreClient(dial(t, Start(t, "firestore")))
	const documents = "projects/p/databases/(default)/documents"
	doc, err := client.CreateDocument(t.Context(), &firestorepb.CreateDocumentRequest{
		Parent: documents, CollectionId: "c", DocumentId: "d", Document: &firestorepb.Document{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := documents + "/c/d"; doc.Name != want {
		t.Errorf("document %q, want %q", doc.Name, want)
	}
}

func TestPubSubEmulatorCreatesATopic(t *testing.T) {
	client := pubsubpb.NewPublisherClient(dial(t, Start(t, "pubsub")))
	const name = "projects/p/topics/events"
	topic, err := client.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	if topic.Name != name {
		t.Errorf("topic %q, want %q", topic.Name, name)
	}
}

func TestAnUnknownEmulatorIsAnError(t *testing.T) {
	if _, err := start(t, "spanner"); err == nil || !strings.Contains(err.Error(), `"spanner"`) {
		t.Errorf("error %v, want one that names the emulator", err)
	}
}

func TestWithoutGcloudTheEmulatorIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := start(t, "bigtable"); !errors.Is(err, errMissing) {
		t.Errorf("error %v, want errMissing", err)
	}
}

func TestAMissingComponentIsAMissingEmulator(t *testing.T) {
	fakeGcloud(t, `echo "ERROR: (gcloud.beta.emulators.bigtable) The following components are required to run this command, but are not"; exit 1`)
	if _, err := start(t, "bigtable"); !errors.Is(err, errMissing) {
		t.Errorf("error %v, want errMissing", err)
	}
}

func TestAnEmulatorThatEndsIsAnErrorWithItsOutput(t *testing.T) {
	fakeGcloud(t, `echo "no Java here" >&2; exit 1`)
	_, err := start(t, "firestore")
	if err == nil || errors.Is(err, errMissing) || !strings.Contains(err.Error(), "no Java here") {
		t.Errorf("error %v, want a failure that carries the output", err)
	}
}

func TestMissingEmulatorSkipsOnALaptopAndFailsInCI(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for ci, want := range map[string]string{"": "skipped", "true": "failed"} {
		t.Setenv("CI", ci)
		probe := &outcome{TB: t}
		done := make(chan struct{})
		go func() { // Skipf and Fatalf end the goroutine
			defer close(done)
			Start(probe, "bigtable")
		}()
		<-done
		if probe.how != want {
			t.Errorf("CI=%q: %s, want %s", ci, probe.how, want)
		}
	}
}

// fakeGcloud puts a gcloud that runs script before the real one.
func fakeGcloud(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gcloud"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
