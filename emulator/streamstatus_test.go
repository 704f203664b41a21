package emulator_test

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// Change-stream cases: 2.
func TestAPartitionMustHaveBothBoundsSet(t *testing.T) {
	f := startStreamed(t)
	const text = "partition.row_range must be the form of [start_key, end_key)"
	none := func(r *changeRequest) { r.Partition = nil }
	noEnd := func(r *changeRequest) { r.Partition.RowRange.EndKey = nil }
	noStart := func(r *changeRequest) { r.Partition.RowRange.StartKey = nil }
	open := func(r *changeRequest) {
		r.Partition.RowRange.StartKey = &bigtablepb.RowRange_StartKeyOpen{StartKeyOpen: []byte("a")}
	}
	for _, with := range []func(*changeRequest){none, noEnd, noStart, open} {
		refused(t, "open", f.open(t, ",", fromTime(noon), with).fails(t), codes.InvalidArgument, text)
	}
	refused(t, "empty", f.open(t, "b,b", fromTime(noon)).fails(t), codes.InvalidArgument, "must not be empty")
	refused(t, "no start", f.open(t, ",").fails(t), codes.InvalidArgument, "start_from must be set")
	refused(t, "no tokens", f.open(t, ",", fromTokens()).fails(t), codes.InvalidArgument, "continuation_tokens")
	refused(t, "no such time", f.open(t, ",", fromTime(noon), func(r *changeRequest) { r.EndTime = &timestamppb.Timestamp{Nanos: -1} }).fails(t), codes.InvalidArgument, "end_time")
	refused(t, "backwards", f.open(t, ",", fromTime(noon), beating(-1)).fails(t), codes.InvalidArgument, "heartbeat_duration")
}

// Change-stream cases: 3.
func TestStartAndEndTimesAreInclusiveMicroseconds(t *testing.T) {
	f := startStreamed(t)
	first := noon.Truncate(time.Microsecond)
	for i, v := range []string{"0", "1", "2", "3"} {
		f.SetClock(first.Add(time.Duration(i) * time.Second))
		f.set(t, "k", v)
	}
	at := func(s int) time.Time { return first.Add(time.Duration(s)*time.Second + 999*time.Nanosecond) }
	c, got := f.open(t, ",", fromTime(at(1)), until(at(2))).closes(t)
	equal(t, "from 1 to 2", got, []string{"k=1", "k=2"})
	if c.Status == nil || c.Status.Code != 0 || len(c.ContinuationTokens)+len(c.NewPartitions) > 0 {
		t.Errorf("%v", c)
	}
	_, got = f.open(t, ",", fromTime(at(1).Add(time.Microsecond)), until(at(2).Add(-time.Microsecond))).closes(t)
	equal(t, "between 1 and 2", got, nil)
	// The end is reached when time is beyond it, not at it.
	r := f.open(t, ",", fromTime(at(3)), until(at(3)), beating(time.Millisecond))
	r.values(t, 1)
	r.position(t)
	f.AdvanceClock(time.Microsecond)
	if _, got = r.closes(t); len(got) > 0 {
		t.Errorf("%q", got)
	}

	refused(t, "future", f.open(t, ",", fromTime(at(4))).fails(t), codes.InvalidArgument, "future")
	refused(t, "before the stream", f.open(t, ",", fromTime(first.Add(-time.Microsecond))).fails(t), codes.InvalidArgument, "before the change stream was enabled")
	f.SetClock(first.Add(24 * time.Hour))
	f.open(t, ",", fromTime(first)).values(t, 4)
	f.AdvanceClock(time.Microsecond)
	refused(t, "before the retention", f.open(t, ",", fromTime(first)).fails(t), codes.InvalidArgument, "retention")
}

// Change-stream cases: 3.
func TestAnEndTimeIsReachedAsTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, emulator.Options{})
		f.create(t, streamed())
		began := time.Now()
		c, _ := f.open(t, ",", fromTime(began), until(began.Add(time.Minute))).closes(t)
		if took := time.Since(began); c.Status.Code != 0 || took < time.Minute || took > time.Minute+10*time.Millisecond {
			t.Errorf("%v after %v", c, took)
		}
	})
}

// Change-stream cases: 4.
func TestTokensMustCoverThePartitionExactly(t *testing.T) {
	f := startStreamed(t, "b", "g", "p")
	tok := func(s span) *token {
		return f.open(t, s, fromTime(noon), beating(time.Millisecond)).position(t)
	}
	a, b, g, p := tok(",b"), tok("b,g"), tok("g,p"), tok("p,")
	const cover = "must exactly cover"
	for name, c := range map[string]struct {
		partition span
		tokens    []*token
	}{
		"another partition":   {",g", []*token{a}},
		"a gap":               {",p", []*token{a, g}},
		"an overlap":          {",g", []*token{a, a, b}},
		"excess":              {",b", []*token{a, b}},
		"too little":          {",", []*token{a, b, g}},
		"not from the start":  {",", []*token{b, g, p}},
		"more behind the end": {",", []*token{a, b, g, p, a}},
	} {
		refused(t, name, f.open(t, c.partition, fromTokens(c.tokens...)).fails(t), codes.InvalidArgument, cover)
	}
	// A token is bound to its partition: naming another one is no way out.
	moved := &token{Partition: span(",g").proto(), Token: a.Token}
	refused(t, "renamed", f.open(t, ",g", fromTokens(moved)).fails(t), codes.InvalidArgument, "another partition")
	for _, k := range []string{"b", "g"} {
		if err := f.MergeTablets(tableT, []byte(k)); err != nil {
			t.Fatal(err)
		}
	}
	for _, order := range [][]*token{{a, b, g}, {g, a, b}, {b, g, a}} {
		f.open(t, ",p", fromTokens(order...), beating(time.Millisecond)).position(t)
	}
}

// Change-stream cases: 6.
func TestAStreamThatCannotBeReadIsRefused(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	_, err := f.insts.CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{Parent: instance, AppProfileId: "multi", AppProfile: &adminpb.AppProfile{
		RoutingPolicy: &adminpb.AppProfile_MultiClusterRoutingUseAny_{MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{}}}})
	if err != nil {
		t.Fatal(err)
	}
	try := func(name string, code codes.Code, table, profile string) {
		t.Helper()
		stream, err := f.data.GenerateInitialChangeStreamPartitions(t.Context(), &bigtablepb.GenerateInitialChangeStreamPartitionsRequest{TableName: table, AppProfileId: profile})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		refused(t, name+": partitions", err, code, "")
		r := f.open(t, ",", fromTime(noon), func(r *changeRequest) { r.TableName, r.AppProfileId = table, profile })
		refused(t, name+": changes", r.fails(t), code, "")
	}
	try("disabled", codes.FailedPrecondition, tableT, "")
	try("several clusters", codes.FailedPrecondition, tableT, "multi")
	try("no table", codes.NotFound, instance+"/tables/nope", "")
	try("no name", codes.InvalidArgument, "t", "")
	try("no profile", codes.NotFound, tableT, "nope")
	if err := f.SetStream(tableT, emulator.StreamSettings{Disabled: codes.NotFound, MultiCluster: codes.InvalidArgument}); err != nil {
		t.Fatal(err)
	}
	try("disabled, set", codes.NotFound, tableT, "")
	try("several clusters, set", codes.InvalidArgument, tableT, "multi")
}

func (f *fixture) setStream(t testing.TB, config *adminpb.ChangeStreamConfig) {
	t.Helper()
	_, err := f.admin.UpdateTable(t.Context(), &adminpb.UpdateTableRequest{
		Table: &adminpb.Table{Name: tableT, ChangeStreamConfig: config}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"change_stream_config"}}})
	if err != nil {
		t.Fatal(err)
	}
}

// Change-stream cases: 7.
func TestAStreamThatIsTurnedOffAndOnAgainIsANewOne(t *testing.T) {
	f := startStreamed(t)
	f.set(t, "k", "1")
	r := f.open(t, ",", fromTime(noon))
	_, tok := r.values(t, 1)
	f.AdvanceClock(time.Second)
	f.setStream(t, nil)
	refused(t, "open while it is turned off", r.fails(t), codes.FailedPrecondition, "not enabled")
	f.set(t, "k", "2")
	f.AdvanceClock(time.Second)
	f.setStream(t, &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(48 * time.Hour)})
	refused(t, "old token", f.open(t, ",", fromTokens(tok)).fails(t), codes.InvalidArgument, "turning on")
	refused(t, "old start", f.open(t, ",", fromTime(noon)).fails(t), codes.InvalidArgument, "before the change stream was enabled")
	f.set(t, "k", "3")
	got, _ := f.open(t, ",", fromTime(f.Now())).values(t, 1)
	equal(t, "the new stream", got, []string{"k=3"})
	// Another table of the name is not the old one either.
	_, tok = f.open(t, ",", fromTime(f.Now())).values(t, 1)
	r = f.open(t, ",", fromTokens(tok), beating(time.Millisecond))
	r.position(t)
	if _, err := f.admin.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: tableT}); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); ; {
		if _, err = r.stream.Recv(); err != nil {
			refused(t, "deleted", err, codes.NotFound, "Table not found")
			break
		}
	}
	f.create(t, streamed())
	refused(t, "token of the old table", f.open(t, ",", fromTokens(tok)).fails(t), codes.InvalidArgument, "another partition, table")
}

// Change-stream cases: 8.
func TestHeartbeatsComeAsOftenAsAskedAndResumeAfterWhatWasSent(t *testing.T) {
	for _, c := range []struct {
		with  func(*changeRequest)
		every time.Duration
	}{{func(*changeRequest) {}, 5 * time.Second}, {beating(0), 5 * time.Second}, {beating(700 * time.Millisecond), 700 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, emulator.Options{})
			f.create(t, streamed())
			began := time.Now()
			f.set(t, "k", "1")
			r := f.open(t, ",", fromTime(began), c.with)
			r.values(t, 1)
			for i := range 3 {
				res := r.next(t)
				h := res.GetHeartbeat()
				at := began.Add(time.Duration(i+1) * c.every)
				if h == nil || !time.Now().Equal(at) || spanOf(h.ContinuationToken.Partition) != "," || !h.EstimatedLowWatermark.AsTime().Equal(at) {
					t.Fatalf("beat %d after %v: %v", i, time.Since(began), res)
				}
				if i == 1 {
					f.set(t, "k", "2")
					r.values(t, 1)
					got, _ := f.open(t, ",", fromTokens(h.ContinuationToken)).values(t, 1)
					equal(t, "after the beat", got, []string{"k=2"})
				}
			}
		})
	}
}

// Change-stream cases: 8, 12. A heartbeat that is due waits for the end of the record.
func TestNoHeartbeatComesWithinARecord(t *testing.T) {
	f := startStreamed(t)
	if err := f.SetStream(tableT, emulator.StreamSettings{ChunkBytes: 10}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.set(t, "k", strings.Repeat("v", 20_000))
	}
	r := f.open(t, ",", fromTime(noon), beating(time.Millisecond))
	for records, within := 0, false; records < 3; {
		res := r.next(t)
		c := res.GetDataChange()
		if c == nil && within {
			t.Fatalf("within a record: %v", res)
		}
		if c != nil {
			if within = !c.Done; c.Done {
				records++
			}
		}
	}
}

// Change-stream cases: 39.
func TestTheLowWatermarkStallsAndFallsBackWhenAsked(t *testing.T) {
	f := startStreamed(t)
	r := f.open(t, ",", fromTime(noon), beating(time.Millisecond))
	mark := func() time.Time { return r.next(t).GetHeartbeat().GetEstimatedLowWatermark().AsTime() }
	wait := func(want time.Time) {
		t.Helper()
		for range 1000 {
			if mark().Equal(want) {
				return
			}
		}
		t.Fatalf("the low watermark is %v, want %v", mark(), want)
	}
	f.AdvanceClock(time.Hour)
	wait(noon.Add(time.Hour).Truncate(time.Microsecond))
	back := noon.Add(-time.Hour).Truncate(time.Microsecond)
	if err := f.SetStream(tableT, emulator.StreamSettings{LowWatermark: back}); err != nil {
		t.Fatal(err)
	}
	wait(back)
	f.AdvanceClock(time.Hour)
	f.set(t, "k", "1")
	if c := r.record(t); !c.EstimatedLowWatermark.AsTime().Equal(back) {
		t.Errorf("%v", c)
	}
	// An end time is not reached while it stalls (apache/beam#26355).
	ended := f.open(t, ",", fromTime(noon), until(noon.Add(3*time.Hour)), beating(time.Millisecond))
	f.AdvanceClock(2 * time.Hour)
	ended.record(t)
	ended.position(t)
	if err := f.SetStream(tableT, emulator.StreamSettings{}); err != nil {
		t.Fatal(err)
	}
	ended.closes(t)
}

// Change-stream cases: 46.
func TestTheHeadersOfAStreamAreChecked(t *testing.T) {
	f := startStreamed(t)
	try := func(header, value string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), header, value)
		partitions, err := f.data.GenerateInitialChangeStreamPartitions(ctx, &bigtablepb.GenerateInitialChangeStreamPartitionsRequest{TableName: tableT})
		if err != nil {
			t.Fatal(err)
		}
		_, err = partitions.Recv()
		req := &changeRequest{TableName: tableT, Partition: span(",").proto()}
		fromTime(noon)(req)
		beating(time.Millisecond)(req)
		changes, err2 := f.data.ReadChangeStream(ctx, req)
		if err2 != nil {
			t.Fatal(err2)
		}
		if _, err2 = changes.Recv(); status.Convert(err2).String() != status.Convert(err).String() {
			t.Errorf("%s: partitions end with %v, changes with %v", value, err, err2)
		}
		return err
	}
	encoded := url.QueryEscape(tableT)
	for _, ok := range []string{"table_name=" + encoded, "table_name=" + encoded + "&app_profile_id=", "app_profile_id=&table_name=" + tableT} {
		if err := try("x-goog-request-params", ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{"table_name=%zz", "table_name=" + encoded + "x", "table_name=" + encoded + "&app_profile_id=other"} {
		refused(t, bad, try("x-goog-request-params", bad), codes.InvalidArgument, "x-goog-request-params")
	}
	if err := try("bigtable-features", "CAE="); err != nil {
		t.Error(err)
	}
	refused(t, "features", try("bigtable-features", "not base64!"), codes.InvalidArgument, "bigtable-features")
}

// Change-stream cases: 47.
func TestAStatusComesAfterAnyMessageOnDemand(t *testing.T) {
	f := startStreamed(t)
	for _, v := range []string{"1", "2", "3"} {
		f.set(t, "k", v)
	}
	f.Inject(emulator.Fault{Method: "ReadChangeStream", Cut: true, CutAfter: 2, Code: codes.Aborted, Count: 1})
	r := f.open(t, ",", fromTime(noon))
	_, tok := r.values(t, 2)
	refused(t, "cut", r.fails(t), codes.Aborted, "injected fault")
	got, _ := f.open(t, ",", fromTokens(tok)).values(t, 1)
	equal(t, "resumed", got, []string{"k=3"})
}

func TestTheControlAPISetsAChangeStream(t *testing.T) {
	f := startStreamed(t)
	s := httptest.NewServer(f.Control())
	defer s.Close()
	body := `{"table":"` + tableT + `","chunkBytes":7,"equalCommitTimes":true,"lowWatermark":"2026-01-02T12:00:00Z","slowReader":"2s","omitNewPartitions":true,"wideTokens":true,` +
		`"disabled":"NOT_FOUND","multiCluster":"INTERNAL","badStart":"OUT_OF_RANGE","expired":"ABORTED","badToken":"DATA_LOSS"}`
	control(t, s.URL, "PUT", "/v1/stream", body, nil)
	want := emulator.StreamSettings{ChunkBytes: 7, EqualCommitTimes: true, LowWatermark: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), SlowReader: 2 * time.Second,
		OmitNewPartitions: true, WideTokens: true, Disabled: codes.NotFound, MultiCluster: codes.Internal, BadStart: codes.OutOfRange, Expired: codes.Aborted, BadToken: codes.DataLoss}
	if got, err := f.Stream(tableT); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	// What it answers is what it takes.
	var again map[string]any
	control(t, s.URL, "GET", "/v1/stream?table="+tableT, "", &again)
	again["table"] = tableT
	b, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetStream(tableT, emulator.StreamSettings{}); err != nil {
		t.Fatal(err)
	}
	control(t, s.URL, "PUT", "/v1/stream", string(b), nil)
	if got, err := f.Stream(tableT); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if err := f.SetStream(tableT, emulator.StreamSettings{ChunkBytes: -1}); err == nil {
		t.Error("a negative size was taken")
	}
	refused(t, "no table", f.SetStream(instance+"/tables/nope", want), codes.NotFound, "")
}

// Change-stream cases: 47.
func TestASlowReaderIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, emulator.Options{})
		f.create(t, streamed())
		began := f.Now()
		for range 300 { // 30 MB
			f.set(t, "k", strings.Repeat("v", 100_000))
		}
		if err := f.SetStream(tableT, emulator.StreamSettings{SlowReader: time.Minute}); err != nil {
			t.Fatal(err)
		}
		r := f.open(t, ",", fromTime(began))
		time.Sleep(59 * time.Second)
		r.values(t, 1)
		time.Sleep(2 * time.Minute)
		n, err := 1, error(nil)
		for ; err == nil && n < 300; n++ {
			_, err = r.stream.Recv()
		}
		refused(t, "slow", err, codes.Aborted, "Response was not consumed in time")
	})
}

// What a slow reader holds does not grow with what there is to read.
func TestASlowReaderCostsBoundedMemory(t *testing.T) {
	f := startStreamed(t)
	for range 300 { // 30 MB
		f.set(t, "k", strings.Repeat("v", 100_000))
	}
	before := heap()
	for range 20 {
		f.open(t, ",", fromTime(noon)).values(t, 1)
	}
	if grown := int64(heap() - before); grown > 150<<20 {
		t.Errorf("20 slow readers of 30 MB take %d MiB", grown>>20)
	}
}

// Change-stream cases: 48.
func TestTokensAreOpaqueAndOutliveARestart(t *testing.T) {
	opts := emulator.Options{DataDir: t.TempDir(), SnapshotBytes: 1 << 12}
	f := start(t, opts)
	f.SetClock(noon)
	f.create(t, streamed("m"))
	for _, v := range []string{"1", "2"} {
		f.set(t, "a", v)
		f.set(t, "x", v)
	}
	_, left := f.open(t, ",m", fromTime(noon)).values(t, 1)
	_, right := f.open(t, "m,", fromTime(noon)).values(t, 2)
	for range 200 { // a snapshot or two
		f.set(t, "x", "filler")
	}
	if err := f.MergeTablets(tableT, []byte("m")); err != nil {
		t.Fatal(err)
	}
	if err := f.SplitTablet(tableT, []byte("g")); err != nil {
		t.Fatal(err)
	}
	if err := f.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = start(t, opts)
	f.SetClock(noon)
	for _, bad := range []string{"", "x", left.Token[:len(left.Token)-1], left.Token + "A", strings.Replace(left.Token, left.Token[8:9], "_", 1)} {
		broken := &token{Partition: left.Partition, Token: bad}
		refused(t, bad, f.open(t, ",m", fromTokens(broken)).fails(t), codes.InvalidArgument, "not a continuation token")
	}
	c, _ := f.open(t, ",m", fromTokens(left)).closes(t)
	equal(t, "left", successors(c), []string{",g > ,g", "g,m > g,"})
	got, _ := f.open(t, ",g", fromTokens(c.ContinuationTokens[0])).values(t, 1)
	equal(t, "left, resumed", got, []string{"a=2"})
	got, _ = f.open(t, "g,", fromTokens(right, c.ContinuationTokens[1])).values(t, 200)
	if slices.ContainsFunc(got, func(v string) bool { return v != "x=filler" }) {
		t.Errorf("served twice: %q", got[:2])
	}
}

// Change-stream cases: 48, 37. Heartbeats keep an idle partition's token alive.
func TestTokensExpireWithTheRetentionUnlessTheyAreRenewed(t *testing.T) {
	f := startStreamed(t, "m")
	f.set(t, "a", "1")
	_, tok := f.open(t, ",m", fromTime(noon)).values(t, 1)
	f.AdvanceClock(24 * time.Hour)
	renewed := f.open(t, ",m", fromTokens(tok), beating(time.Millisecond)).position(t)
	f.AdvanceClock(time.Microsecond)
	refused(t, "old", f.open(t, ",m", fromTokens(tok)).fails(t), codes.InvalidArgument, "older than the change stream's retention")
	if err := f.SetStream(tableT, emulator.StreamSettings{Expired: codes.OutOfRange, BadStart: codes.Internal, BadToken: codes.DataLoss}); err != nil {
		t.Fatal(err)
	}
	refused(t, "old, set", f.open(t, ",m", fromTokens(tok)).fails(t), codes.OutOfRange, "")
	refused(t, "old start, set", f.open(t, ",m", fromTime(noon)).fails(t), codes.OutOfRange, "")
	refused(t, "future, set", f.open(t, ",m", fromTime(f.Now().Add(time.Hour))).fails(t), codes.Internal, "")
	refused(t, "no token, set", f.open(t, ",m", fromTokens(&token{Partition: tok.Partition})).fails(t), codes.DataLoss, "")
	f.set(t, "a", "2")
	got, _ := f.open(t, ",m", fromTokens(renewed)).values(t, 1)
	equal(t, "renewed", got, []string{"a=2"})
}

// A reader that is open while time jumps must not be told nothing happened.
func TestAReaderThatFallsBehindTheRetentionIsTold(t *testing.T) {
	f := startStreamed(t)
	value := strings.Repeat("v", 50_000)
	for range 100 {
		f.set(t, "k", value)
	}
	r := f.open(t, ",", fromTime(noon))
	r.values(t, 1)
	f.AdvanceClock(25 * time.Hour)
	if _, err := f.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		if _, err := r.stream.Recv(); err != nil {
			refused(t, "behind", err, codes.InvalidArgument, "fallen behind")
			break
		} else if n == 100 {
			t.Fatal("all was served")
		}
	}
	// One that has nothing to read waits however long it takes.
	idle := f.open(t, ",", fromTime(f.Now()), beating(time.Hour))
	f.set(t, "k", "0")
	idle.values(t, 1)
	f.AdvanceClock(25 * time.Hour)
	f.set(t, "k", "1")
	got, _ := idle.values(t, 1)
	equal(t, "idle", got, []string{"k=1"})
}
