package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"cloud.google.com/go/bigtable"
	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
	"github.com/cloudevents/sdk-go/v2/event"
)

// The baselines: decoding alone, and the function that one writes first.

type pushBody struct {
	Message struct {
		Data      []byte `json:"data"`
		MessageID string `json:"messageId"`
	} `json:"message"`
}

type order struct {
	Tenant, ID, Status, Coupon string
	TotalCents                 int64     `json:"total_cents"`
	UpdatedAt                  time.Time `json:"updated_at"`
}

// orders decodes an event's lines.
func orders(data []byte) ([]order, error) {
	var out []order
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, lines.Err()
}

func serveBaseline(kind string) error {
	slog.SetLogLoggerLevel(slog.LevelError)
	switch kind {
	case "floor":
		functions.HTTP("fn", decodeOnly)
	case "naive":
		client, err := bigtable.NewClientWithConfig(context.Background(), "p", "i", bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}})
		if err != nil {
			return err
		}
		table := client.Open("orders")
		functions.CloudEvent("fn", func(ctx context.Context, e event.Event) error { return naive(ctx, table, e) })
	default:
		return fmt.Errorf("no baseline %q", kind)
	}
	if err := os.Setenv("FUNCTION_TARGET", "fn"); err != nil {
		return err
	}
	return funcframework.StartHostPort("127.0.0.1", os.Getenv("PORT"))
}

func decodeOnly(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var p pushBody
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if err == nil {
		_, err = orders(p.Message.Data)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func naive(ctx context.Context, table *bigtable.Table, e event.Event) error {
	var p pushBody
	if err := e.DataAs(&p); err != nil {
		return err
	}
	all, err := orders(p.Message.Data)
	if err != nil {
		return err
	}
	keys, mutations := make([]string, len(all)), make([]*bigtable.Mutation, len(all))
	for i, o := range all {
		m, ts := bigtable.NewMutation(), bigtable.Time(o.UpdatedAt)
		m.Set("cf", "status", ts, []byte(o.Status))
		m.Set("cf", "total", ts, fmt.Append(nil, o.TotalCents))
		m.Set("cf", "coupon", ts, []byte(o.Coupon))
		keys[i], mutations[i] = "order#"+o.Tenant+"#"+o.ID, m
	}
	if len(all) == 1 {
		return table.Apply(ctx, keys[0], mutations[0])
	}
	errs, err := table.ApplyBulk(ctx, keys, mutations)
	return errors.Join(append(errs, err)...)
}
