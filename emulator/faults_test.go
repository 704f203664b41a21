package emulator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

func TestAStatusComesBeforeOrAfterTheWriteIsApplied(t *testing.T) {
	for name, write := range map[string]func(f *fixture) error{
		"MutateRow": func(f *fixture) error {
			_, err := f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, RowKey: []byte("k"), Mutations: put("k", "a", "v").Mutations})
			return err
		},
		"MutateRows": func(f *fixture) error {
			entries, err := mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: tableT, Entries: []*bigtablepb.MutateRowsRequest_Entry{put("k", "a", "v")}})
			if len(entries) > 0 && err != nil {
				t.Error("a call that failed told the outcome of entries")
			}
			return err
		},
	} {
		for _, after := range []bool{false, true} {
			f := start(t, emulator.Options{})
			f.create(t)
			f.Inject(emulator.Fault{Method: name, Code: codes.Unavailable, Message: "gone", After: after, Count: 1, RetryDelay: time.Second})
			err := write(f)
			refused(t, name, err, codes.Unavailable, "gone")
			if info, ok := status.Convert(err).Details()[0].(*errdetails.RetryInfo); !ok || info.RetryDelay.AsDuration() != time.Second {
				t.Errorf("%s: details %v", name, status.Convert(err).Details())
			}
			if applied := len(f.rows(t)) == 1; applied != after {
				t.Errorf("%s, after=%v: applied=%v", name, after, applied)
			}
			if err := write(f); err != nil {
				t.Errorf("%s: the fault outlived its count: %v", name, err)
			}
		}
	}
}

func TestFaultsPickCallsByMethodTableAndNumber(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	id := f.Inject(emulator.Fault{Method: "ReadRows", Table: tableT, Code: codes.Aborted, Skip: 1, Count: 2})
	f.Inject(emulator.Fault{Method: "ReadRows", Table: instance + "/tables/other", Code: codes.Internal})
	f.Inject(emulator.Fault{Method: "SampleRowKeys", Code: codes.Internal})
	var got []codes.Code
	for range 5 {
		_, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
		got = append(got, status.Code(err))
	}
	if want := []codes.Code{codes.OK, codes.Aborted, codes.Aborted, codes.OK, codes.OK}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if faults := f.Faults(); len(faults) != 3 || faults[0].ID != id || faults[0].Hits != 2 {
		t.Errorf("%+v", faults)
	}
	if !f.RemoveFault(id) || f.RemoveFault(id) || len(f.Faults()) != 2 {
		t.Error("RemoveFault")
	}
	f.ClearFaults()
	if _, err := f.samples(t, &bigtablepb.SampleRowKeysRequest{TableName: tableT}); err != nil {
		t.Error(err)
	}
}

// issue-row: 3, 18
func TestEntriesFailOrAreOmittedOneByOne(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault emulator.Fault
		codes []codes.Code // -1: omitted
		rows  []string
	}{
		{"before", emulator.Fault{Code: codes.ResourceExhausted, Entries: []int{1}}, []codes.Code{0, 8, 0}, []string{"a", "c"}},
		{"after", emulator.Fault{Code: codes.Unavailable, Entries: []int{0, 2}, After: true}, []codes.Code{14, 0, 14}, []string{"a", "b", "c"}},
		{"omitted", emulator.Fault{Omit: []int{1}}, []codes.Code{0, 99, 0}, []string{"a", "b", "c"}},
		{"both", emulator.Fault{Omit: []int{0}, Entries: []int{2}, Code: codes.Aborted}, []codes.Code{99, 0, 10}, []string{"a", "b"}},
	} {
		f := start(t, emulator.Options{})
		f.create(t)
		test.fault.Method, test.fault.Count = "MutateRows", 1
		f.Inject(test.fault)
		got := []codes.Code{99, 99, 99}
		for _, e := range f.write(t, put("a", "a", "v"), put("b", "a", "v"), put("c", "a", "v")) {
			got[e.Index] = codes.Code(e.Status.Code)
		}
		if !slices.Equal(got, test.codes) || !slices.Equal(keysOf(f.rows(t)), test.rows) {
			t.Errorf("%s: %v, rows %q", test.name, got, keysOf(f.rows(t)))
		}
	}
}

// issue-row: 24
func TestAStreamIsCutAfterAsManyRowsAsAsked(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.write(t, put("a", "a", "v"), put("b", "a", "v"), put("c", "a", "v"))
	for n := range 4 {
		f.ClearFaults()
		f.Inject(emulator.Fault{Method: "ReadRows", Cut: true, CutAfter: n, Count: 1})
		rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
		refused(t, "cut", err, codes.Unavailable, "injected")
		if len(rows) != n {
			t.Errorf("cut after %d: %q", n, rows)
		}
	}
	f.ClearFaults()
	f.Inject(emulator.Fault{Method: "ReadRows", Cut: true, CutAfter: 4, Code: codes.Internal})
	if rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT}); err != nil || len(rows) != 3 {
		t.Errorf("a stream that ends before the cut: %q, %v", rows, err)
	}
}

func TestAStreamIsSilentAfterAsManyRowsAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, emulator.Options{})
		f.create(t)
		f.write(t, put("a", "a", "v"), put("b", "a", "v"), put("c", "a", "v"))
		f.Inject(emulator.Fault{Method: "ReadRows", Cut: true, CutAfter: 2, Hang: true, Count: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		rows, err := read(ctx, f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
		if len(rows) != 2 || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%q, %v, want two rows and then nothing until the deadline", rows, err)
		}
	})
}

// issue-row: 23
func TestDelaysAndHangsEndWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, emulator.Options{})
		f.create(t)
		f.Inject(emulator.Fault{Method: "MutateRows", Delay: time.Hour, Count: 1})
		began := time.Now()
		f.write(t, put("a", "a", "v"))
		if took := time.Since(began); took != time.Hour {
			t.Errorf("a delay of an hour took %v", took)
		}
		f.Inject(emulator.Fault{Hang: true})
		for name, call := range map[string]func(ctx context.Context) error{
			"MutateRow": func(ctx context.Context) error {
				_, err := f.data.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: tableT})
				return err
			},
			"ReadRows": func(ctx context.Context) error {
				_, err := read(ctx, f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			began := time.Now()
			refused(t, name, call(ctx), codes.DeadlineExceeded, "")
			if took := time.Since(began); took != 20*time.Minute {
				t.Errorf("%s hung for %v", name, took)
			}
			cancel()
		}
		f.ClearFaults()
	})
}

func TestCloseEndsCallsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, emulator.Options{GCInterval: time.Minute})
		f.create(t)
		f.Inject(emulator.Fault{Hang: true})
		done := make(chan error)
		go func() {
			_, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
			done <- err
		}()
		synctest.Wait()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err == nil {
			t.Error("the call succeeded")
		}
		if err := f.Close(); err != nil {
			t.Error("a second Close:", err)
		}
	})
}

func TestClientsThatAskForItGetRateLimits(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.Inject(emulator.Fault{Method: "MutateRows", RateLimitFactor: 0.7, RateLimitPeriod: time.Minute})
	for _, asks := range []bool{false, true} {
		ctx := withFeatures(t.Context(), &bigtablepb.FeatureFlags{MutateRowsRateLimit2: asks})
		stream, err := f.data.MutateRows(ctx, &bigtablepb.MutateRowsRequest{TableName: tableT, Entries: []*bigtablepb.MutateRowsRequest_Entry{put("a", "a", "v")}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		limit := res.RateLimitInfo
		if asks != (limit != nil) || asks && (limit.Factor != 0.7 || limit.Period.AsDuration() != time.Minute) {
			t.Errorf("asked %v: %v", asks, limit)
		}
	}
}

// control sends a request to the control API and decodes what comes back.
func control(t *testing.T, url, method, path, body string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Errorf("%s %s: %s: %v", method, path, b, err)
		}
	}
	return res.StatusCode
}

func TestTheControlAPIDoesWhatTheGoAPIDoes(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	s := httptest.NewServer(f.Control())
	defer s.Close()
	var id struct{ ID int }
	fault := `{"method":"MutateRows","table":"` + tableT + `","skip":0,"count":1,"delay":"1ms","code":"RESOURCE_EXHAUSTED","message":"m",
		"after":true,"entries":[0],"retryDelay":"2s","omit":[1],"rateLimitFactor":0.5,"rateLimitPeriod":"3s"}`
	if control(t, s.URL, "POST", "/v1/faults", fault, &id) != 200 || id.ID != 1 {
		t.Fatal(id)
	}
	want := emulator.Fault{Method: "MutateRows", Table: tableT, Count: 1, Delay: time.Millisecond, Code: codes.ResourceExhausted, Message: "m",
		After: true, Entries: []int{0}, RetryDelay: 2 * time.Second, Omit: []int{1}, RateLimitFactor: 0.5, RateLimitPeriod: 3 * time.Second}
	if got := f.Faults()[0].Fault; !faultsEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if e := f.write(t, put("a", "a", "v"), put("b", "a", "v")); len(e) != 1 || e[0].Status.Code != int32(codes.ResourceExhausted) {
		t.Errorf("%v", e)
	}
	var listed []map[string]any
	control(t, s.URL, "GET", "/v1/faults", "", &listed)
	if len(listed) != 1 || listed[0]["code"] != "RESOURCE_EXHAUSTED" || listed[0]["hits"] != 1.0 || listed[0]["delay"] != "1ms" {
		t.Errorf("%v", listed)
	}
	for _, step := range []struct {
		method, path, body string
		status             int
	}{
		{"DELETE", "/v1/faults/1", "", 204},
		{"DELETE", "/v1/faults/1", "", 404},
		{"DELETE", "/v1/faults", "", 204},
		{"POST", "/v1/faults", `{"code":"NOPE"}`, 400},
		{"POST", "/v1/faults", `{"unknown":1}`, 400},
		{"POST", "/v1/faults", `{"delay":"soon"}`, 400},
		{"PUT", "/v1/clock", `{"now":"2026-01-02T12:00:00Z"}`, 200},
		{"PUT", "/v1/clock", `{"advance":"90m"}`, 200},
		{"POST", "/v1/tablets/split", `{"table":"` + tableT + `","key":"bQ=="}`, 204},
		{"POST", "/v1/tablets/split", `{"table":"` + tableT + `","key":"bQ=="}`, 409},
		{"POST", "/v1/tablets/shift", `{"table":"` + tableT + `","key":"bQ==","to":"bg=="}`, 204},
		{"POST", "/v1/tablets/move", `{"table":"` + tableT + `","key":"bg=="}`, 204},
		{"POST", "/v1/tablets/juggle", `{"table":"` + tableT + `"}`, 409},
		{"GET", "/v1/tablets?table=nope", "", 404},
		{"GET", "/nope", "", 404},
	} {
		if got := control(t, s.URL, step.method, step.path, step.body, nil); got != step.status {
			t.Errorf("%s %s %s: %d", step.method, step.path, step.body, got)
		}
	}
	if want := time.Date(2026, 1, 2, 13, 30, 0, 0, time.UTC); !f.Now().Equal(want) {
		t.Errorf("clock: %v", f.Now())
	}
	var tablets []emulator.Tablet
	control(t, s.URL, "GET", "/v1/tablets?table="+tableT, "", &tablets)
	if len(tablets) != 2 || string(tablets[0].End) != "n" || string(tablets[1].Start) != "n" {
		t.Errorf("%+v", tablets)
	}
	if got := control(t, s.URL, "POST", "/v1/tablets/merge", `{"table":"`+tableT+`","key":"bg=="}`, nil); got != 204 {
		t.Errorf("merge: %d", got)
	}
	var collected struct{ Rows int }
	if control(t, s.URL, "POST", "/v1/gc", "{}", &collected) != 200 {
		t.Error("gc")
	}
	control(t, s.URL, "PUT", "/v1/clock", `{"reset":true}`, nil)
	if d := time.Since(f.Now()); d < 0 || d > time.Minute {
		t.Errorf("the clock was not reset: %v", d)
	}
}

func faultsEqual(a, b emulator.Fault) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func TestNoWebPageCanDriveTheControlAPI(t *testing.T) {
	f := start(t, emulator.Options{})
	for name, test := range map[string]struct {
		host, contentType string
		status            int
	}{
		"another name for this host": {"evil.example:80", "application/json", http.StatusForbidden},
		"another address":            {"192.0.2.1", "application/json", http.StatusForbidden},
		"a form":                     {"localhost:80", "text/plain", http.StatusUnsupportedMediaType},
		"IPv4":                       {"127.0.0.1:80", "application/json", http.StatusOK},
		"IPv6":                       {"[::1]:80", "application/json", http.StatusOK},
	} {
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/faults", strings.NewReader("{}"))
		req.Host = test.host
		req.Header.Set("Content-Type", test.contentType)
		w := httptest.NewRecorder()
		f.Control().ServeHTTP(w, req)
		if w.Code != test.status {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}
