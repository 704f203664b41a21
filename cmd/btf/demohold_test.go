package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/status"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// post sends JSON to the local Pub/Sub, and returns its answer.
func post(t *testing.T, host, path, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+"/v1/projects/local/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, text, err)
	}
	return string(text)
}

func TestAHeldDemoCanBeLookedAtFromAnyDirectory(t *testing.T) {
	in(t, nil)
	var stdout, stderr output
	cmd := root(&stdout, &stderr)
	cmd.SetArgs([]string{"demo", "--hold"})
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	host := waitForText(t, &stderr, regexp.MustCompile(`PUBSUB_EMULATOR_HOST=(\S+)`), done)
	file := waitForText(t, &stderr, regexp.MustCompile(`btf status -f (\S+) --all\n`), done)
	place := waitForText(t, &stderr, regexp.MustCompile(`LEDGER=(\S+)`), done)
	waitForText(t, &stderr, regexp.MustCompile(`(Ctrl-C ends it\n)`), done)

	var out output
	cfg := status.Config{File: file, All: true, Now: time.Now, Env: assemble.Env{Ledger: ledger.Location{Path: strings.TrimPrefix(place, "file:")}}}
	if err := printStatus(ctx, cfg, &out); err != nil || !strings.Contains(out.String(), "done, 12 of 12 splits done") {
		t.Errorf("status says %q, %v", &out, err)
	}

	// Another scan, of which the demo tells nothing.
	name := regexp.MustCompile(`btf scan -f \S+ (\S+)`).FindStringSubmatch(stderr.String())[1]
	request := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"scan": "%s"}`, name))
	post(t, host, "topics/flights-scan-requests:publish", `{"messages": [{"data": "`+request+`"}]}`)
	for ended := map[string]bool{}; len(ended) < 2; { // one that is pulled comes again in a while
		var pulled struct {
			ReceivedMessages []struct{ Message struct{ MessageID string } }
		}
		answer := post(t, host, "subscriptions/flights-scan-done:pull", `{"maxMessages": 1}`)
		if err := json.Unmarshal([]byte(answer), &pulled); err != nil {
			t.Fatal(err)
		}
		for _, m := range pulled.ReceivedMessages {
			ended[m.Message.MessageID] = true
		}
	}
	interrupt()
	if err := <-done; err != nil {
		t.Errorf("an interrupt ends the demo with %v", err)
	}
	if _, after, _ := strings.Cut(stderr.String(), "Ctrl-C ends it\n"); after != "" {
		t.Errorf("while it is held it says %q", after)
	}
	if _, err := os.Stat(file); err == nil {
		t.Errorf("%s is left behind", file)
	}
}
