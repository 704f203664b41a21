package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/dev"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// The line that dev prints is complete: no program of ours is needed to start a scan.
func TestTheLineThatDevPrintsStartsAScan(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("curl is not installed, and CI must have it: ", err)
		}
		t.Skip("curl is not installed: ", err)
	}
	d := startDev(t, scansOnly)
	line := d.said(`(?m)^  (curl .*)$`)
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil || !strings.Contains(string(out), "messageIds") {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	d.said(`\(ids\) (is done: 0 rows)`)
	d.end()
}

func TestTheEndOfAScanIsToldBehindItsSplitsAndOnItsTopic(t *testing.T) {
	d, run := startDevOf(t, withValue("event.status")+withScan, dev.SystemClock())
	d.publish(`{"id": "a", "status": "PAID"}`)
	id := d.ask(`{"scan": "ids"}`)
	d.said(`(is done: 1 row, 1 record, 0 dropped, 1 split, in )`)
	text := d.stderr.String()
	if split, end := strings.Index(text, "split 0: done, 1 row, 1 record, 0 dropped"), strings.Index(text, "is done:"); split < 0 || split > end {
		t.Errorf("the split is told behind the scan:\n%s", text)
	}
	if m := regexp.MustCompile(`\b1 (row|record|split|task)s`).FindString(text); m != "" {
		t.Errorf("it says %s:\n%s", m, text)
	}
	conn, err := run.Local.Cloud.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := pubsubpb.NewSubscriberClient(conn).Pull(t.Context(), &pubsubpb.PullRequest{
		Subscription: "projects/local/subscriptions/orders-scan-done", MaxMessages: 10,
	})
	if err != nil || len(r.ReceivedMessages) != 1 {
		t.Fatalf("pulled %v, %v", r, err)
	}
	if done, err := task.DecodeScanDone(r.ReceivedMessages[0].Message.Data); err != nil || done.Scan != id {
		t.Errorf("pulled %+v, %v", done, err)
	}
	d.end()
}

func TestDevSuggestsOnlyScansThatItServes(t *testing.T) {
	archive := "  archive: {table: orders, to: {gcs: {bucket: my-bucket, format: ndjson}}}\n"
	d := startDev(t, strings.Replace(scansOnly, "scans:\n", "scans:\n"+archive, 1))
	d.said(`scan archive: (it cannot be started here: .* and not to gcs; btf scan with --to FILE writes its records to a file)`)
	d.said(`to start a scan, publish ({"scan": "ids"})`)
	d.end()
	only := startDev(t, scansOnly[:strings.Index(scansOnly, "  ids:")]+archive)
	if text := only.stderr.String(); strings.Contains(text, "to start a scan") {
		t.Errorf("it suggests a scan that it does not serve:\n%s", text)
	}
	only.end()
}

func TestDevTellsWhyAScanToATopicThatIsNotThereDoesNotEnd(t *testing.T) {
	d := startDev(t, withValue("event.status")+withScan)
	d.publish(`{"id": "a", "status": "PAID"}`)
	id := d.ask(`{"scan": "ids", "to": {"pubsub": {"topic": "nowhere"}}}`)
	d.said(`scan ` + id + ` \(ids\), split 0: will be tried again: .*(projects/local/topics/nowhere.* does not exist)`)
	d.end()
}

// Subscriptions are what lint says of the file, which is what Terraform deploys.
func TestDevDeliversAsDeployed(t *testing.T) {
	in(t, map[string]string{"orders.yaml": withValue("event.status") + withScan})
	d, run := startDevOf(t, withValue("event.status")+withScan, dev.SystemClock())
	loaded, findings := lint.Load([]byte(withValue("event.status")+withScan), pipeline.Options{File: "orders.yaml"})
	if loaded == nil {
		t.Fatal(findings.Err())
	}
	conn, err := run.Local.Cloud.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	compared := 0
	for _, want := range loaded.Report.Resources.Subscriptions {
		got, err := pubsubpb.NewSubscriberClient(conn).GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{
			Subscription: "projects/local/subscriptions/" + want.ID,
		})
		if err != nil {
			t.Error(err)
			continue
		}
		if want.Service == "" {
			continue
		}
		compared++
		if time.Duration(got.AckDeadlineSeconds)*time.Second != time.Duration(want.AckDeadline) ||
			got.MessageRetentionDuration.AsDuration() != time.Duration(want.Retention) ||
			got.RetryPolicy.MinimumBackoff.AsDuration() != time.Duration(want.MinBackoff) ||
			got.RetryPolicy.MaximumBackoff.AsDuration() != time.Duration(want.MaxBackoff) {
			t.Errorf("%s is %v, want %+v", want.ID, got, want)
		}
	}
	if compared != 3 {
		t.Errorf("%d subscriptions compared", compared)
	}
	d.end()
}
