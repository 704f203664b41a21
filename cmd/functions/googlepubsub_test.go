package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bigtable-functions/bigtable-functions/internal/googleemu"
)

// Google's Pub/Sub emulator pushes the flights to the function's process: the same
// rows as with our own.
func TestGooglesPubSubPushesTheFlights(t *testing.T) {
	addr := googleemu.Start(t, "pubsub")
	b := startBigtable(t, "demo", "demo", "flights", "flight")
	c := startChild(t, "function", "PIPELINE="+flightsPipeline(t), "FUNCTION_TARGET=write",
		"BIGTABLE_EMULATOR_HOST="+b.addr, "PUBSUB_EMULATOR_HOST="+addr)

	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const project = "demo-project"
	client, err := pubsub.NewClient(ctx, project, option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topic := "projects/" + project + "/topics/flights-events"
	if _, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	_, err = client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: "projects/" + project + "/subscriptions/flights-events", Topic: topic, AckDeadlineSeconds: 60,
		PushConfig: &pubsubpb.PushConfig{PushEndpoint: c.url},
	})
	if err != nil {
		t.Fatal(err)
	}
	events := bytes.Split(bytes.TrimSpace(readFlights(t)), []byte("\n"))
	publisher := client.Publisher(topic)
	defer publisher.Stop()
	var results []*pubsub.PublishResult
	for _, e := range events {
		results = append(results, publisher.Publish(ctx, &pubsub.Message{Data: e}))
	}
	for _, r := range results {
		if _, err := r.Get(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var there map[string]bool
	err = waitFor(ctx, func() bool {
		there = b.keys(t, "demo", "demo", "flights")
		return len(there) == len(events)
	})
	if err != nil {
		t.Fatalf("%d of %d rows: %v\n%s", len(there), len(events), err, c.output())
	}
	if !there["LAX#BNA#2001/01/01 06:55"] {
		t.Error("the first flight's row is missing")
	}
	if n := linesWith(c.output(), "delivery refused"); n > 0 {
		t.Errorf("%d deliveries refused:\n%s", n, strings.TrimSpace(c.output()))
	}
}
