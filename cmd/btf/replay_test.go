package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/functest/deploy"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// replayFile has a counter under a marker and a row at the publish time. What is
// computed of an event's n, and what identifies the event, differ between deployments.
func replayFile(n, dedupeID string) string {
	return strings.NewReplacer("DELTA", n, "DEDUPEID", dedupeID).Replace(`
version: 1
name: replays
bigtable: {project: my-project, instance: my-instance}
tables:
  counters:
    families: {totals: {aggregate: sum}, seen: {gc: {maxAge: 1080h}}}
  notes:
    families: {cf: {columns: {note: string}}}
write:
  format: ndjson
  skip: has(event.heartbeat)
  onFailure: dead-letter
  mappings:
    - name: count
      when: has(event.n)
      table: counters
      rowKey: event.counter
      timestamp: timestamp("2026-08-30T00:00:00Z")
      dedupe: marker
      markerFamily: seen
      dedupeId: DEDUPEID
      mutations: [{add: {totals: {sum: 'DELTA'}}}]
    - name: note
      when: has(event.note)
      table: notes
      rowKey: event.id
      mutations: [{set: {cf: {note: event.note}}}]
`)
}

// replaySetup is a deployed pipeline whose parts the command under test reaches over TCP.
type replaySetup struct {
	t        *testing.T
	emulator *emulator.Emulator
	conn     *grpc.ClientConn
	cloud    *localcloud.Cloud
	events   *localcloud.Subscription
	client   *pubsub.Client
}

func newReplaySetup(t *testing.T, file string) *replaySetup {
	t.Helper()
	h := &replaySetup{t: t}
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "pipeline.yaml"})
	h.must(err)
	var addr string
	h.emulator, h.conn, addr = functest.BigtableOverTCP(t, emulator.Options{})
	schema := writer.Schemas(p.Tables)
	for _, table := range p.Tables {
		s, err := schema(pipeline.TableRef{Project: table.Project, Instance: table.Instance, Table: table.ID})
		h.must(err)
		_, err = adminpb.NewBigtableTableAdminClient(h.conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
			Parent: "projects/my-project/instances/my-instance", TableId: table.ID, Table: &adminpb.Table{ColumnFamilies: s.Declared()},
		})
		h.must(err)
	}
	h.cloud, err = localcloud.New(localcloud.Options{Project: "local", Logger: slog.New(slog.DiscardHandler)})
	h.must(err)
	t.Cleanup(func() { h.cloud.Close(context.Background()) })
	h.client, err = h.cloud.Client(t.Context())
	h.must(err)
	t.Cleanup(func() { h.client.Close() })
	h.deploy(p, file, addr)
	t.Setenv("BIGTABLE_EMULATOR_HOST", addr)
	t.Setenv("PUBSUB_EMULATOR_HOST", h.cloud.Addr())
	t.Setenv("PUBSUB_PROJECT", "local")
	return h
}

// deploy puts the function behind a subscription that soon gives up.
func (h *replaySetup) deploy(p *pipeline.Pipeline, file, addr string) {
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{Emulator: addr})
	h.must(err)
	logger := slog.New(slog.DiscardHandler)
	w, err := write.NewWriter(p, dialer, logger)
	h.must(err)
	h.t.Cleanup(func() { w.Close(context.Background()) })
	letters := deadletter.NewPublisher(h.client.Publisher(p.Name + "-dead-letter"))
	h.t.Cleanup(func() { letters.Close() })
	compiled, err := mapping.Compile(p, mapping.ServiceLimits())
	h.must(err)
	handler, err := write.New(write.Config{
		Pipeline: p, Compiled: compiled, Writer: w, DeadLetters: letters, Budget: write.Budget,
		Logger: logger, Now: time.Now, Report: func(context.Context, write.Summary) {},
	})
	h.must(err)
	h.events = deploy.Write(h.t, h.cloud, file, handler, func(p *localcloud.Push) {
		p.MaxAttempts, p.MinBackoff, p.MaxBackoff = 2, 10*time.Millisecond, 10*time.Millisecond
	})
}

func (h *replaySetup) must(err error) {
	if err != nil {
		h.t.Helper()
		h.t.Fatal(err)
	}
}

// publish publishes messages and waits until each is settled. It returns their times.
func (h *replaySetup) publish(messages ...string) []time.Time {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	topic := h.client.Publisher("replays-events")
	defer topic.Stop()
	for _, m := range messages {
		_, err := topic.Publish(ctx, &pubsub.Message{Data: []byte(m), Attributes: map[string]string{"of": "test"}}).Get(ctx)
		h.must(err)
	}
	h.must(h.events.Idle(ctx))
	var times []time.Time
	for _, m := range h.cloud.Published("replays-events") {
		times = append(times, m.PublishTime)
	}
	return times[len(times)-len(messages):]
}

// replay runs the command with a file and more arguments.
func (h *replaySetup) replay(file string, args ...string) (stdout, stderr string, err error) {
	h.t.Helper()
	name := filepath.Join(h.t.TempDir(), "pipeline.yaml")
	h.must(os.WriteFile(name, []byte(file), 0o600))
	var out, log bytes.Buffer
	cmd := root(&out, &log)
	cmd.SetArgs(append([]string{"replay", "-f", name}, args...))
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	err = cmd.ExecuteContext(ctx)
	return out.String(), log.String(), err
}

// cells reads a table: row/family:qualifier → its newest cell.
func (h *replaySetup) cells(table string) map[string]bigtable.ReadItem {
	h.t.Helper()
	client, err := bigtable.NewClientWithConfig(h.t.Context(), "my-project", "my-instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(h.conn))
	h.must(err)
	out := map[string]bigtable.ReadItem{}
	h.must(client.Open(table).ReadRows(h.t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		for _, items := range r {
			for _, item := range items {
				out[r.Key()+"/"+item.Column] = item
			}
		}
		return true
	}, bigtable.RowFilter(bigtable.LatestNFilter(1))))
	return out
}

func (h *replaySetup) sum(counter string) int64 {
	h.t.Helper()
	item, ok := h.cells("counters")[counter+"/totals:sum"]
	if !ok {
		return 0
	}
	return int64(binary.BigEndian.Uint64(item.Value))
}

const (
	strict  = `int(event.n)`
	lenient = `event.n == "bad" ? 100 : int(event.n)`
)

// Dead letters and undelivered messages are applied once, with the ids and times of the
// messages they came from, and only what is applied is acknowledged.
//
// covers: FAIL-08, FAIL-09, SNK-10
func TestReplayAppliesOnceWhatWasGivenUp(t *testing.T) {
	h := newReplaySetup(t, replayFile(strict, "event.id"))
	// A record that the mapping refuses, between good ones; one entry that Bigtable refuses.
	h.publish(`{"id":"1","counter":"c","n":"1"}` + "\n" + `{"id":"2","counter":"c","n":"bad"}`)
	h.emulator.Inject(emulator.Fault{Method: "CheckAndMutateRow", Code: codes.InvalidArgument, Count: 1, Message: "refused for the test"})
	h.publish(`{"id":"3","counter":"c","n":"10"}`)
	// A message that Pub/Sub gives up on although it is applied.
	for _, method := range []string{"MutateRows", "CheckAndMutateRow"} {
		h.emulator.Inject(emulator.Fault{Method: method, Code: codes.PermissionDenied, After: true})
	}
	published := h.publish(`{"id":"4","counter":"c","n":"1000","note":"late"}` + "\n" + `{"heartbeat":1}`)[0]
	h.emulator.ClearFaults()
	if got := h.sum("c"); got != 1001 {
		t.Fatalf("the sum before is %d", got)
	}

	out, log, err := h.replay(replayFile(lenient, "event.id"), "--dry-run")
	if err != nil || !strings.Contains(log, "3 messages would be replayed") {
		t.Errorf("dry run: %v\n%s", err, log)
	}
	for _, text := range []string{
		`record of message `, `check-and-mutate of message `, `undelivered of message `,
		`counters "c"`, `add totals:sum += 100 @ 2026-08-30T00:00:00.000Z`, `add totals:sum += 10 @`, `add totals:sum += 1000 @`,
		`notes "4"`, `set cf:note = "late" @ ` + published.UTC().Truncate(time.Millisecond).Format("2006-01-02T15:04:05.000Z"),
		`1 records are skipped`, `refused for the test`,
	} {
		if !strings.Contains(out, text) {
			t.Errorf("the dry run does not print %q:\n%s", text, out)
		}
	}
	if got := h.sum("c"); got != 1001 {
		t.Errorf("the dry run makes the sum %d", got)
	}

	// The old file still refuses the record, which stays; the others are applied.
	if _, log, err = h.replay(replayFile(strict, "event.id")); err == nil || !strings.Contains(log, "2 messages replayed and acknowledged, 0 left because the filters exclude them, 1 left because") {
		t.Errorf("%v\n%s", err, log)
	}
	if got := h.sum("c"); got != 1011 {
		t.Errorf("the sum after the first replay is %d", got)
	}
	if _, log, err = h.replay(replayFile(lenient, "event.id")); err != nil || !strings.Contains(log, "1 messages replayed and acknowledged") {
		t.Errorf("%v\n%s", err, log)
	}
	if _, log, err = h.replay(replayFile(lenient, "event.id")); err != nil || !strings.Contains(log, "0 messages replayed and acknowledged") {
		t.Errorf("%v\n%s", err, log)
	}
	if got := h.sum("c"); got != 1111 {
		t.Errorf("the sum is %d, want 1111", got)
	}
	note := h.cells("notes")["4/cf:note"]
	if string(note.Value) != "late" || note.Timestamp.Time().UnixMilli() != published.UnixMilli() {
		t.Errorf("the undelivered message's row: %q @ %v, published %v", note.Value, note.Timestamp.Time(), published)
	}
}

// Filters leave everything else where it is.
func TestReplayLeavesWhatTheFiltersDo(t *testing.T) {
	h := newReplaySetup(t, replayFile(strict, "event.id"))
	h.publish(`{"id":"1","counter":"c","n":"bad"}`, `{"id":"2","note":[]}`)
	fixed := strings.Replace(replayFile(lenient, "event.id"), "note: event.note", `note: '"x"'`, 1)
	for _, c := range []struct {
		args []string
		says string
		fail string
	}{
		{[]string{"--table", "ghosts"}, "", "no such table"},
		{[]string{"--since", "yesterday"}, "", "neither a time"},
		{[]string{"--error", "quota"}, "0 messages replayed and acknowledged, 2 left", ""},
		{[]string{"--since", time.Now().Add(time.Hour).Format(time.RFC3339)}, "0 messages replayed and acknowledged, 2 left", ""},
		{[]string{"--table", "notes", "--since", "1h"}, "1 messages replayed and acknowledged, 1 left", ""},
		{[]string{"--error", "mapping count"}, "1 messages replayed and acknowledged, 0 left", ""},
	} {
		_, log, err := h.replay(fixed, c.args...)
		if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) || !strings.Contains(log, c.says) {
			t.Errorf("%v: %v\n%s", c.args, err, log)
		}
	}
	if got := h.sum("c"); got != 100 {
		t.Errorf("the sum is %d", got)
	}
}

// Pub/Sub keeps no id of a message that it moves: what depends on one is not guessed.
func TestReplayDoesNotGuessAMessagesID(t *testing.T) {
	for _, dedupeID := range []string{"message.id", `event.id + message.id`} {
		h := newReplaySetup(t, replayFile(strict, dedupeID))
		fault := h.emulator.Inject(emulator.Fault{Method: "CheckAndMutateRow", Code: codes.PermissionDenied, After: true})
		h.publish(`{"id":"1","counter":"c","n":"1"}`)
		h.emulator.RemoveFault(fault)
		if _, log, err := h.replay(replayFile(strict, dedupeID)); err == nil || !strings.Contains(log, "--new-ids") {
			t.Errorf("%s: %v\n%s", dedupeID, err, log)
		}
		if got := h.sum("c"); got != 1 {
			t.Errorf("%s: the sum is %d", dedupeID, got)
		}
		if _, log, err := h.replay(replayFile(strict, dedupeID), "--new-ids"); err != nil || !strings.Contains(log, "1 messages replayed") {
			t.Errorf("%s: %v\n%s", dedupeID, err, log)
		}
		if got := h.sum("c"); got != 2 {
			t.Errorf("%s: under another id the event counts again: %d", dedupeID, got)
		}
	}
}

// A dead letter keeps its message's id, so that a second one of the same record, of a
// delivery whose acknowledgement was lost, changes nothing.
func TestLettersOfOneRecordCountOnce(t *testing.T) {
	h := newReplaySetup(t, replayFile(strict, "message.id"))
	h.publish(`{"id":"1","counter":"c","n":"bad"}`)
	letter := h.cloud.Published("replays-dead-letter")[0]
	topic := h.client.Publisher("replays-dead-letter")
	defer topic.Stop()
	_, err := topic.Publish(t.Context(), &pubsub.Message{Data: letter.Data, Attributes: letter.Attributes}).Get(t.Context())
	h.must(err)
	if _, log, err := h.replay(replayFile(lenient, "message.id")); err != nil || !strings.Contains(log, "2 messages replayed") {
		t.Errorf("%v\n%s", err, log)
	}
	if got := h.sum("c"); got != 100 {
		t.Errorf("the sum is %d", got)
	}
}

// What is on the topics and is neither stays, and says why.
func TestReplayLeavesWhatItDoesNotKnow(t *testing.T) {
	h := newReplaySetup(t, replayFile(strict, "event.id"))
	topic := h.client.Publisher("replays-dead-letter")
	defer topic.Stop()
	letter := func(kind, mapping, id string) map[string]string {
		return map[string]string{"kind": kind, "table": "projects/p/instances/i/tables/t", "mapping": mapping, "error": "e",
			"time": "2026-08-30T10:15:31Z", "messageId": id, "publishTime": "2026-08-30T10:15:30Z", "message": `{"place":0,"whole":true}`}
	}
	bare := letter("record", "count", "1")
	delete(bare, "message")
	for _, attributes := range []map[string]string{
		nil, letter("entry", "count", "1"), letter("record", "gone", "1"), letter("record", "count", ""), letter("output", "", "1"),
		bare, letter("request", "", "1"),
	} {
		_, err := topic.Publish(t.Context(), &pubsub.Message{Data: []byte("{}"), Attributes: attributes}).Get(t.Context())
		h.must(err)
	}
	_, log, err := h.replay(replayFile(strict, "event.id"))
	if err == nil || !strings.Contains(log, fmt.Sprintf("%d left because", 7)) {
		t.Errorf("%v\n%s", err, log)
	}
	for _, text := range []string{"neither a dead letter nor", "is not in the pipeline file", "mapping gone is not in the pipeline file any more: its letters are applied once a mapping of the file has this name", "no message of Pub/Sub", "no message id", "kind output"} {
		if !strings.Contains(log, text) {
			t.Errorf("does not say %q:\n%s", text, log)
		}
	}
}
