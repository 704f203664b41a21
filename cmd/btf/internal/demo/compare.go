package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/api/option"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// maxTold bounds how many differing rows an error names.
const maxTold = 5

// cells are a row's cells: family:qualifier → its newest version.
type cells map[string]bigtable.ReadItem

// readBack reads every row and compares it with what the events say. equal are the rows that are
// as their events say.
func (d *Demo) readBack(ctx context.Context) (equal int, differences, err error) {
	conn, err := d.local.Emulator.Dial(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	t, rows := d.flights.Pipeline.Tables[0], d.flights.rows
	client, err := bigtable.NewClientWithConfig(ctx, t.Project, t.Instance, bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(conn))
	if err != nil {
		return 0, nil, fmt.Errorf("connecting to read back: %w", err)
	}
	defer client.Close()
	found := 0
	var wrong []string
	err = client.Open(t.ID).ReadRows(ctx, bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		found++
		if equalCells(rowCells(r), rows[r.Key()]) {
			equal++
		} else if len(wrong) < maxTold {
			wrong = append(wrong, mapping.Key(t, []byte(r.Key())))
		}
		return true
	}, bigtable.RowFilter(bigtable.LatestNFilter(1)))
	if err != nil {
		return 0, nil, fmt.Errorf("reading back: %w", err)
	}
	if len(wrong) > 0 {
		differences = fmt.Errorf("%d of %d rows differ from their events, as %s", found-equal, found, wrong)
	}
	if found != len(rows) {
		differences = errors.Join(differences, fmt.Errorf("%d rows are there, and the events make %d", found, len(rows)))
	}
	return equal, differences, nil
}

// expectedRows applies what the pipeline makes of each event to a model of the table.
// It takes only what the demo's pipeline has: cells set at the record's own time.
func expectedRows(p *pipeline.Pipeline, events [][]byte) (map[string]cells, error) {
	compiled, err := mapping.Compile(p, mapping.ServiceLimits())
	if err != nil {
		return nil, err
	}
	decoder := &record.Decoder{}
	rows := map[string]cells{}
	for i, e := range events {
		result := compiled.Map(&expr.Message{ID: "expected", PublishTime: time.Unix(0, 0)}, decoder.JSON(e), time.Now())
		if len(result.Rows) != 1 || len(result.Rejected) > 0 {
			return nil, fmt.Errorf("event %d makes %d rows and %d rejections", i, len(result.Rows), len(result.Rejected))
		}
		row := cells{}
		for _, m := range result.Rows[0].Entry.Mutations {
			set := m.GetSetCell()
			if set == nil {
				return nil, fmt.Errorf("event %d does more than set cells", i)
			}
			row[set.FamilyName+":"+string(set.ColumnQualifier)] = bigtable.ReadItem{Timestamp: bigtable.Timestamp(set.TimestampMicros), Value: set.Value}
		}
		rows[string(result.Rows[0].Entry.RowKey)] = row
	}
	return rows, nil
}

func rowCells(r bigtable.Row) cells {
	out := cells{}
	for _, items := range r {
		for _, item := range items {
			out[item.Column] = item
		}
	}
	return out
}

func equalCells(a, b cells) bool {
	if len(a) != len(b) {
		return false
	}
	for column, x := range a {
		y, ok := b[column]
		if !ok || x.Timestamp != y.Timestamp || !bytes.Equal(x.Value, y.Value) {
			return false
		}
	}
	return true
}
