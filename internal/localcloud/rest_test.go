package localcloud_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
)

// web asks a Cloud over HTTP.
type web struct {
	t    *testing.T
	addr string
}

// do sends a request and returns its status and the JSON of its answer.
func (w web) do(method, path, body string, headers ...string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.addr+path, strings.NewReader(body))
	must(w.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as `curl -d` sends it
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(r)
	must(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(w.t, err)
	var v any
	must(w.t, json.Unmarshal(text, &v))
	text, err = json.Marshal(v)
	must(w.t, err)
	return resp.StatusCode, string(text)
}

// want sends a request that succeeds and wants an answer that holds a text.
func (w web) want(want, method, path, body string) string {
	w.t.Helper()
	code, got := w.do(method, path, body)
	if code != 200 || !strings.Contains(got, want) {
		w.t.Errorf("%s %s: %d %s, want 200 %s", method, path, code, got, want)
	}
	return got
}

func overHTTP(t *testing.T, test func(t *testing.T, c *localcloud.Cloud, w web)) {
	overTCP(t, func(t *testing.T, c *localcloud.Cloud) {
		defer http.DefaultClient.CloseIdleConnections()
		test(t, c, web{t, c.Addr()})
	})
}

func TestMessagesArePublishedAndPulledOverHTTP(t *testing.T) {
	overHTTP(t, func(t *testing.T, c *localcloud.Cloud, w web) {
		s := deploy(t, c, newFunction(accept), nil)
		const sub = "/v1/projects/my-project/subscriptions/mine"
		w.want(`"ackDeadlineSeconds":10`, "PUT", sub, `{"topic": "projects/my-project/topics/flights-events"}`)
		w.want(`{"messageIds":["m0","m1"]}`, "POST", "/v1/projects/my-project/topics/flights-events:publish",
			`{"messages": [{"data": "eHl6", "attributes": {"a": "b"}}, {"data": "MQ=="}]}`)
		idle(t, s)
		if got := c.Published("flights-events"); len(got) != 2 || string(got[0].Data) != "xyz" || got[0].Attributes["a"] != "b" {
			t.Errorf("published %+v", got)
		}
		got := w.want(`"messageId":"m0"`, "POST", sub+":pull", `{"maxMessages": 10}`)
		var pulled struct {
			ReceivedMessages []struct{ AckID string }
		}
		must(t, json.Unmarshal([]byte(got), &pulled))
		w.want(`{}`, "POST", sub+":acknowledge", `{"ackIds": ["`+pulled.ReceivedMessages[0].AckID+`"]}`)
		w.want(`{}`, "POST", sub+":modifyAckDeadline", `{"ackIds": ["`+pulled.ReceivedMessages[1].AckID+`"], "ackDeadlineSeconds": 0}`)
		again := w.want(`"messageId":"m1"`, "POST", sub+":pull", `{"maxMessages": 10}`)
		if strings.Contains(again, "m0") {
			t.Errorf("what was acknowledged comes again: %s", again)
		}
		w.want(`{}`, "DELETE", sub, "")
		if code, got := w.do("GET", sub, ""); code != 404 || !strings.Contains(got, `"status":"NOT_FOUND"`) {
			t.Errorf("after it was deleted: %d %s", code, got)
		}
	})
}

func TestTopicsAndSubscriptionsAreListedInPages(t *testing.T) {
	overHTTP(t, func(t *testing.T, c *localcloud.Cloud, w web) {
		must(t, c.CreateTopics(t.Context(), "c", "a", "b", "projects/other/topics/d"))
		must(t, c.CreatePull(t.Context(), "a", "s1", time.Minute))
		_, err := c.CreatePush(t.Context(), localcloud.Push{ID: "s2", Topic: "a", Endpoint: "http://nowhere/", AckDeadline: 1, Retention: 1})
		must(t, err)
		const project = "/v1/projects/my-project"
		w.want(`{"nextPageToken":"projects/my-project/topics/b","topics":[{"name":"projects/my-project/topics/a"},{"name":"projects/my-project/topics/b"}]}`,
			"GET", project+"/topics?pageSize=2&alt=json", "")
		w.want(`{"topics":[{"name":"projects/my-project/topics/c"}]}`, "GET", project+"/topics?pageSize=2&pageToken=projects/my-project/topics/b", "")
		w.want(`"pushEndpoint":"http://nowhere/"`, "GET", project+"/subscriptions", "")
		w.want(`{"subscriptions":["projects/my-project/subscriptions/s1","projects/my-project/subscriptions/s2"]}`,
			"GET", project+"/topics/a/subscriptions", "")
		w.want(`{}`, "DELETE", project+"/topics/c", "")
	})
}

func TestWhatIsWrongOverHTTPIsSaid(t *testing.T) {
	overHTTP(t, func(t *testing.T, c *localcloud.Cloud, w web) {
		must(t, c.CreateTopics(t.Context(), "out"))
		const publish = "/v1/projects/my-project/topics/out:publish"
		for _, test := range []struct {
			name, method, path, body string
			headers                  []string
			code                     int
			want                     string
		}{
			{"no such topic", "POST", "/v1/projects/my-project/topics/none:publish", `{"messages": [{"data": "eA=="}]}`, nil, 404,
				"topic projects/my-project/topics/none does not exist"},
			{"no such path", "POST", "/v1/projects/my-project/topics/out:shout", "", nil, 404, "there is no POST"},
			{"no JSON", "POST", publish, `{`, nil, 400, "reading the body"},
			{"no such field", "POST", publish, `{"message": "x"}`, nil, 400, "unknown field"},
			{"no base64", "POST", publish, `{"messages": [{"data": "{}"}]}`, nil, 400, "INVALID_ARGUMENT"},
			{"no number", "GET", "/v1/projects/my-project/topics?pageSize=many", "", nil, 400, "reading pageSize"},
			{"no text", "GET", "/v1/projects/my-project/topics/%ff", "", nil, 400, "INVALID_ARGUMENT"},
			{"not served", "POST", "/v1/projects/my-project/subscriptions/s:seek", "{}", nil, 501, "UNIMPLEMENTED"},
			{"from a page", "POST", publish, `{"messages": [{"data": "eA=="}]}`, []string{"Origin", "http://example.com"}, 403, "PERMISSION_DENIED"},
			{"by another name", "POST", publish, `{"messages": [{"data": "eA=="}]}`, []string{"Host", "example.com"}, 403, "PERMISSION_DENIED"},
		} {
			if code, got := w.do(test.method, test.path, test.body, test.headers...); code != test.code || !strings.Contains(got, test.want) {
				t.Errorf("%s: %d %s, want %d %s", test.name, code, got, test.code, test.want)
			}
		}
		if n := len(c.Published("out")); n != 0 {
			t.Errorf("%d messages were published", n)
		}
	})
}

// Connections that say nothing, or leave, hold up neither the others nor Close.
func TestSilentConnectionsAreClosed(t *testing.T) {
	overHTTP(t, func(t *testing.T, c *localcloud.Cloud, w web) {
		silent, err := net.Dial("tcp", c.Addr())
		must(t, err)
		defer silent.Close()
		gone, err := net.Dial("tcp", c.Addr())
		must(t, err)
		must(t, gone.Close())
		must(t, c.CreateTopics(t.Context(), "out"))
		w.want(`topics/out`, "GET", "/v1/projects/my-project/topics", "")
		must(t, c.Close(t.Context()))
		if n, err := silent.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes", n)
		}
	})
}

func TestGcloudPublishesAndPulls(t *testing.T) {
	if _, err := exec.LookPath("gcloud"); err != nil {
		t.Skip("gcloud is not installed: ", err)
	}
	overHTTP(t, func(t *testing.T, c *localcloud.Cloud, _ web) {
		must(t, c.CreateTopics(t.Context(), "out"))
		gcloud := func(args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "gcloud", append([]string{"pubsub"}, args...)...)
			cmd.Env = append(os.Environ(), "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB=http://"+c.Addr()+"/", "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true",
				"CLOUDSDK_CORE_PROJECT=my-project", "CLOUDSDK_CONFIG="+filepath.Join(t.TempDir(), "gcloud"), "CLOUDSDK_CORE_DISABLE_PROMPTS=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("gcloud pubsub %s: %v\n%s", args, err, out)
			}
			return string(out)
		}
		gcloud("subscriptions", "create", "mine", "--topic", "out")
		gcloud("topics", "publish", "out", "--message", `{"scan": "x"}`)
		if got := c.Published("out"); len(got) != 1 || string(got[0].Data) != `{"scan": "x"}` {
			t.Errorf("published %+v", got)
		}
		if got := gcloud("subscriptions", "pull", "mine", "--auto-ack", "--format", "value(message.data.decode(base64))"); strings.TrimSpace(got) != `{"scan": "x"}` {
			t.Errorf("pulled %q", got)
		}
	})
}
