package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/examples"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Every example of the repository has tests, and passes them and lint.
func TestTheTestsOfTheExamplesPass(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/pipeline.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if got, _, err := run(t, "test", file); err != nil || strings.Count(got, "ok    ") < 2 {
			t.Errorf("%s: %v\n%s", file, err, got)
		}
		if _, _, err := run(t, "lint", file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Its README says that there is a message for each mapping.
func TestEachMessageOfTheOrdersExampleMakesRows(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.CopyFS(".", examples.Orders); err != nil {
		t.Fatal(err)
	}
	messages, err := filepath.Glob("orders/messages/*.json")
	if err != nil || len(messages) != 3 {
		t.Fatalf("%v, %v", messages, err)
	}
	var all string
	for _, m := range messages {
		got, _, err := run(t, "explain", "orders/pipeline.yaml", m)
		if err != nil || !strings.Contains(got, "\nrow ") {
			t.Errorf("%s: %v\n%s", m, err, got)
		}
		all += got
	}
	for _, mapping := range []string{"order-upsert", "page-views", "order-lines"} {
		if !strings.Contains(all, mapping+": takes it") {
			t.Errorf("no message is for %s", mapping)
		}
	}
}

// feed is the example's file, read with nothing of ours.
type feed struct {
	Features []struct {
		ID         string
		Properties struct {
			Title, Place, MagType, Type, Status string
			Alert                               *string
			Mag                                 float64
			Time, Updated                       int64
			Sig, Tsunami                        int32
			Felt                                *int32
		}
		Geometry struct{ Coordinates [3]float64 }
	}
}

// covers: SNK-02
func TestAnEarthquakeFeedIsOneMessageAndARowForEachQuake(t *testing.T) {
	file, err := examples.Earthquakes.ReadFile("earthquakes/pipeline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data, err := examples.Earthquakes.ReadFile("earthquakes/earthquakes.json")
	if err != nil {
		t.Fatal(err)
	}
	loaded, findings := lint.Load(file, pipeline.Options{File: "pipeline.yaml"})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	p := loaded.Pipeline
	var mu sync.Mutex
	var applied, failed int
	wrote := func(_ context.Context, s write.Summary) {
		mu.Lock()
		defer mu.Unlock()
		applied += s.Applied
		failed += s.Failed
	}
	l, err := localdeploy.Start(t.Context(), loaded, localdeploy.Options{Logger: slog.New(slog.DiscardHandler), Reports: func(int) assemble.Reports { return assemble.Reports{Write: wrote} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	publish(t, l, p, data)
	mu.Lock()
	if applied != 1707 || failed != 0 {
		t.Errorf("%d applied, %d failed", applied, failed)
	}
	mu.Unlock()
	var want feed
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	got := readTable(t, l, p.Tables[0])
	if len(got) != len(want.Features) || len(got) != 1707 {
		t.Errorf("%d rows of %d features", len(got), len(want.Features))
	}
	for _, f := range want.Features {
		q := f.Properties
		cells := map[string][]byte{
			"title": []byte(q.Title), "place": []byte(q.Place), "magnitude": double(q.Mag), "magnitude_type": []byte(q.MagType),
			"time":      binary.BigEndian.AppendUint64(nil, uint64(q.Time)),
			"longitude": double(f.Geometry.Coordinates[0]), "latitude": double(f.Geometry.Coordinates[1]), "depth": double(f.Geometry.Coordinates[2]),
			"felt": {}, "alert": []byte("null"), "significance": binary.BigEndian.AppendUint32(nil, uint32(q.Sig)),
			"tsunami": {0}, "kind": []byte(q.Type), "status": []byte(q.Status),
		}
		if q.Felt != nil {
			cells["felt"] = binary.BigEndian.AppendUint32(nil, uint32(*q.Felt))
		}
		if q.Alert != nil {
			cells["alert"] = []byte(*q.Alert)
		}
		if q.Tsunami == 1 {
			cells["tsunami"] = []byte{0xff}
		}
		row := got[f.ID]
		if len(row) != len(cells) {
			t.Fatalf("%s: %d cells", f.ID, len(row))
		}
		for name, value := range cells {
			if c := row["quake:"+name]; !bytes.Equal(c.Value, value) || int64(c.Timestamp) != q.Updated*1000 {
				t.Fatalf("%s: %s is %x @ %d, want %x @ %d", f.ID, name, c.Value, c.Timestamp, value, q.Updated*1000)
			}
		}
	}
}

func double(f float64) []byte { return binary.BigEndian.AppendUint64(nil, math.Float64bits(f)) }

// publish sends one message to the pipeline and waits until it is acknowledged.
func publish(t *testing.T, l *localdeploy.Deployment, p *pipeline.Pipeline, data []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := l.Cloud.Client(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topic := client.Publisher(p.Name + "-events")
	defer topic.Stop()
	if _, err := topic.Publish(ctx, &pubsub.Message{Data: data}).Get(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Push(p.Name+"-events").Wait(ctx, func(n localcloud.Counts) bool { return n.Acked == 1 }); err != nil {
		t.Fatal(err)
	}
}

// readTable reads all rows.
func readTable(t *testing.T, l *localdeploy.Deployment, table *pipeline.Table) map[string]map[string]bigtable.ReadItem {
	t.Helper()
	conn, err := l.Emulator.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, err := bigtable.NewClientWithConfig(t.Context(), table.Project, table.Instance, bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	rows := map[string]map[string]bigtable.ReadItem{}
	err = client.Open(table.ID).ReadRows(t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		row := map[string]bigtable.ReadItem{}
		for _, items := range r {
			for _, item := range items {
				row[item.Column] = item
			}
		}
		rows[r.Key()] = row
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
