package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

type (
	changeRequest  = bigtablepb.ReadChangeStreamRequest
	changeResponse = bigtablepb.ReadChangeStreamResponse
	dataChange     = bigtablepb.ReadChangeStreamResponse_DataChange
)

// streamed turns the table's change stream on, for a day, and splits it.
func streamed(splits ...string) func(*adminpb.CreateTableRequest) {
	return func(r *adminpb.CreateTableRequest) {
		r.Table.ChangeStreamConfig = &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)}
		for _, s := range splits {
			r.InitialSplits = append(r.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(s)})
		}
	}
}

// span is a partition, as "start,end".
type span string

func (s span) proto() *bigtablepb.StreamPartition {
	start, end, _ := strings.Cut(string(s), ",")
	return &bigtablepb.StreamPartition{RowRange: &bigtablepb.RowRange{
		StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte(start)},
		EndKey:   &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte(end)},
	}}
}

func spanOf(p *bigtablepb.StreamPartition) span {
	return span(string(p.GetRowRange().GetStartKeyClosed()) + "," + string(p.GetRowRange().GetEndKeyOpen()))
}

type token = bigtablepb.StreamContinuationToken

// fromTime and fromTokens say where a request starts.
func fromTime(at time.Time) func(*changeRequest) {
	return func(r *changeRequest) {
		r.StartFrom = &bigtablepb.ReadChangeStreamRequest_StartTime{StartTime: timestamppb.New(at)}
	}
}

func fromTokens(tokens ...*token) func(*changeRequest) {
	return func(r *changeRequest) {
		r.StartFrom = &bigtablepb.ReadChangeStreamRequest_ContinuationTokens{ContinuationTokens: &bigtablepb.StreamContinuationTokens{Tokens: tokens}}
	}
}

func until(at time.Time) func(*changeRequest) {
	return func(r *changeRequest) { r.EndTime = timestamppb.New(at) }
}

func beating(every time.Duration) func(*changeRequest) {
	return func(r *changeRequest) { r.HeartbeatDuration = durationpb.New(every) }
}

// reading is one call of ReadChangeStream.
type reading struct {
	partition span
	stream    bigtablepb.Bigtable_ReadChangeStreamClient
	stop      context.CancelFunc
}

func (f *fixture) open(t testing.TB, s span, with ...func(*changeRequest)) *reading {
	t.Helper()
	req := &changeRequest{TableName: tableT, Partition: s.proto()}
	for _, w := range with {
		w(req)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	stream, err := f.data.ReadChangeStream(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return &reading{s, stream, stop}
}

// fails is the status of a call that is refused.
func (r *reading) fails(t testing.TB) error {
	t.Helper()
	res, err := r.stream.Recv()
	if err == nil {
		t.Errorf("%v was sent", res)
	}
	return err
}

func (r *reading) next(t testing.TB) *changeResponse {
	t.Helper()
	res, err := r.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// record is the next record, whole and in one message.
func (r *reading) record(t testing.TB) *dataChange {
	t.Helper()
	for {
		res := r.next(t)
		if res.GetHeartbeat() != nil {
			continue
		}
		c := res.GetDataChange()
		if c == nil || !c.Done {
			t.Fatalf("%v is no whole record", res)
		}
		return c
	}
}

// values reads records and returns the row key and value of the one cell of each.
func (r *reading) values(t testing.TB, n int) (values []string, last *token) {
	t.Helper()
	for range n {
		c := r.record(t)
		values = append(values, fmt.Sprintf("%s=%s", c.RowKey, c.Chunks[0].Mutation.GetSetCell().GetValue()))
		last = &token{Partition: r.partition.proto(), Token: c.Token}
	}
	return values, last
}

// closes reads up to the close, which ends the stream, and returns the values before it.
func (r *reading) closes(t testing.TB) (*bigtablepb.ReadChangeStreamResponse_CloseStream, []string) {
	t.Helper()
	var values []string
	for {
		res := r.next(t)
		if c := res.GetDataChange(); c != nil {
			values = append(values, fmt.Sprintf("%s=%s", c.RowKey, c.Chunks[0].Mutation.GetSetCell().GetValue()))
		}
		if c := res.GetCloseStream(); c != nil {
			if res, err := r.stream.Recv(); !errors.Is(err, io.EOF) {
				t.Fatalf("after the close: %v, %v", res, err)
			}
			return c, values
		}
	}
}

// successors describes a close as token range > new partition.
func successors(c *bigtablepb.ReadChangeStreamResponse_CloseStream) []string {
	var out []string
	for i, tok := range c.ContinuationTokens {
		opened := span("none")
		if len(c.NewPartitions) > 0 {
			opened = spanOf(c.NewPartitions[i])
		}
		out = append(out, string(spanOf(tok.Partition)+" > "+opened))
	}
	return out
}

// position reads up to a heartbeat and returns its token.
func (r *reading) position(t testing.TB) *token {
	t.Helper()
	for {
		if h := r.next(t).GetHeartbeat(); h != nil {
			return h.ContinuationToken
		}
	}
}

func (f *fixture) set(t testing.TB, key, value string) {
	t.Helper()
	f.write(t, entry(key, setCell("a", "q", 1000, []byte(value))))
}

func (f *fixture) partitions(t testing.TB) []span {
	t.Helper()
	stream, err := f.data.GenerateInitialChangeStreamPartitions(t.Context(), &bigtablepb.GenerateInitialChangeStreamPartitionsRequest{TableName: tableT})
	if err != nil {
		t.Fatal(err)
	}
	var out []span
	for {
		res, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		r := res.Partition.GetRowRange()
		if _, ok := r.GetStartKey().(*bigtablepb.RowRange_StartKeyClosed); !ok {
			t.Errorf("%v has no start", res)
		}
		if _, ok := r.GetEndKey().(*bigtablepb.RowRange_EndKeyOpen); !ok {
			t.Errorf("%v has no end", res)
		}
		out = append(out, spanOf(res.Partition))
	}
}

func equal(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func startStreamed(t testing.TB, splits ...string) *fixture {
	f := start(t, emulator.Options{})
	f.SetClock(noon)
	f.create(t, streamed(splits...))
	return f
}

// Change-stream cases: 1.
func TestInitialPartitionsTileTheTable(t *testing.T) {
	f := startStreamed(t, "b", "g", "p")
	if got := f.partitions(t); !slices.Equal(got, []span{",b", "b,g", "g,p", "p,"}) {
		t.Errorf("%q", got)
	}
}

// Change-stream cases: 19.
func TestASplitClosesTheParentAndTheChildrenResume(t *testing.T) {
	f := startStreamed(t)
	f.set(t, "a", "1")
	r := f.open(t, ",", fromTime(noon))
	_, first := r.values(t, 1)
	f.set(t, "x", "2")
	if err := f.SplitTablet(tableT, []byte("m")); err != nil {
		t.Fatal(err)
	}
	f.set(t, "a", "3")
	f.set(t, "x", "4")
	c, before := r.closes(t)
	equal(t, "before the close", before, []string{"x=2"})
	equal(t, "successors", successors(c), []string{",m > ,m", "m, > m,"})
	if c.Status.Code != 11 || c.Status.Message != "Partition boundaries are misaligned." {
		t.Errorf("%v", c.Status)
	}
	for i, want := range []string{"a=3", "x=4"} {
		got, _ := f.open(t, spanOf(c.NewPartitions[i]), fromTokens(c.ContinuationTokens[i])).values(t, 1)
		equal(t, "resumed", got, []string{want})
	}
	// The parent is gone: its token closes at once, and leads to the children.
	c, before = f.open(t, ",", fromTokens(first)).closes(t)
	equal(t, "after the split", before, nil)
	got, _ := f.open(t, "m,", fromTokens(c.ContinuationTokens[1])).values(t, 2)
	equal(t, "from before the split", got, []string{"x=2", "x=4"})
}

// Change-stream cases: 20, 5.
func TestAMergeResumesEachPartFromItsOwnToken(t *testing.T) {
	f := startStreamed(t, "m")
	left, right := f.open(t, ",m", fromTime(noon)), f.open(t, "m,", fromTime(noon))
	f.set(t, "a", "1")
	f.set(t, "x", "2")
	f.set(t, "a", "3")
	f.set(t, "x", "4")
	_, slow := left.values(t, 1) // has not seen a=3
	_, fast := right.values(t, 2)
	left.stop()
	if err := f.MergeTablets(tableT, []byte("m")); err != nil {
		t.Fatal(err)
	}
	c, _ := right.closes(t)
	equal(t, "successors", successors(c), []string{"m, > ,"})
	f.set(t, "x", "5")
	for _, tokens := range [][]*token{{slow, fast}, {c.ContinuationTokens[0], slow}} {
		r := f.open(t, ",", fromTokens(tokens...))
		got, middle := r.values(t, 1)
		equal(t, "merged", got, []string{"a=3"})
		got, _ = f.open(t, ",", fromTokens(middle)).values(t, 1)
		equal(t, "resumed between the two", got, []string{"x=5"})
	}
	// The way back: each child gets what its part of the token says.
	merged := f.open(t, ",", fromTokens(slow, fast))
	got, _ := merged.values(t, 1)
	equal(t, "merged again", got, []string{"a=3"})
	if err := f.SplitTablet(tableT, []byte("m")); err != nil {
		t.Fatal(err)
	}
	c, got = merged.closes(t)
	equal(t, "split again", successors(c), []string{",m > ,m", "m, > m,"})
	equal(t, "before the split", got, []string{"x=5"})
}

// Change-stream cases: 5.
func TestTokensOfSeveralPlacesSurviveASplitBeforeTheyAreUsed(t *testing.T) {
	f := startStreamed(t, "g", "p")
	for i := range 9 {
		f.set(t, []string{"a", "h", "x"}[i%3], fmt.Sprint(i))
	}
	var tokens []*token
	for i, s := range []span{",g", "g,p", "p,"} {
		_, tok := f.open(t, s, fromTime(noon)).values(t, i+1)
		tokens = append(tokens, tok)
	}
	for _, k := range []string{"g", "p"} {
		if err := f.MergeTablets(tableT, []byte(k)); err != nil {
			t.Fatal(err)
		}
	}
	// Of the whole table, close at once: the place is cut for the children.
	if err := f.SplitTablet(tableT, []byte("m")); err != nil {
		t.Fatal(err)
	}
	c, _ := f.open(t, ",", fromTokens(tokens[2], tokens[0], tokens[1])).closes(t)
	equal(t, "successors", successors(c), []string{",m > ,m", "m, > m,"})
	got, _ := f.open(t, ",m", fromTokens(c.ContinuationTokens[0])).values(t, 3)
	equal(t, "left", got, []string{"a=3", "a=6", "h=7"})
	f.set(t, "x", "9")
	got, _ = f.open(t, "m,", fromTokens(c.ContinuationTokens[1])).values(t, 1)
	equal(t, "right", got, []string{"x=9"})
}

// Change-stream cases: 20.
func TestAMergeClosesBothParentsAndTheirTokensTogetherOpenOneStream(t *testing.T) {
	f := startStreamed(t, "m")
	left, right := f.open(t, ",m", fromTime(noon)), f.open(t, "m,", fromTime(noon))
	f.set(t, "a", "1")
	f.set(t, "x", "2")
	left.values(t, 1)
	right.values(t, 1)
	if err := f.MergeTablets(tableT, []byte("m")); err != nil {
		t.Fatal(err)
	}
	f.set(t, "a", "3")
	f.set(t, "x", "4")
	var tokens []*token
	for i, r := range []*reading{left, right} {
		c, before := r.closes(t)
		equal(t, "successors", successors(c), []string{[]string{",m > ,", "m, > ,"}[i]})
		equal(t, "before the close", before, nil)
		refused(t, "one token", f.open(t, ",", fromTokens(c.ContinuationTokens...)).fails(t), codes.InvalidArgument, "must exactly cover")
		tokens = append(tokens, c.ContinuationTokens...)
	}
	got, _ := f.open(t, ",", fromTokens(tokens...)).values(t, 2)
	equal(t, "merged", got, []string{"a=3", "x=4"})
}

// Change-stream cases: 21.
func TestAShiftGivesATokenForEachPart(t *testing.T) {
	f := startStreamed(t, "b", "d")
	left, right := f.open(t, ",b", fromTime(noon)), f.open(t, "b,d", fromTime(noon))
	f.set(t, "a", "1")
	f.set(t, "b", "2")
	left.values(t, 1)
	right.values(t, 1)
	f.set(t, "c", "3")
	if err := f.ShiftTablets(tableT, []byte("b"), []byte("c")); err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"a", "b", "c"} {
		f.set(t, key, fmt.Sprint(4+i))
	}
	a, before := left.closes(t)
	equal(t, "left", successors(a), []string{",b > ,c"})
	equal(t, "left, before the close", before, nil)
	c, before := right.closes(t)
	equal(t, "right", successors(c), []string{"b,c > ,c", "c,d > c,d"})
	equal(t, "right, before the close", before, []string{"c=3"})
	got, _ := f.open(t, ",c", fromTokens(a.ContinuationTokens[0], c.ContinuationTokens[0])).values(t, 2)
	equal(t, "left, resumed", got, []string{"a=4", "b=5"})
	got, _ = f.open(t, "c,d", fromTokens(c.ContinuationTokens[1])).values(t, 1)
	equal(t, "right, resumed", got, []string{"c=6"})
}

// Change-stream cases: 19, 20, 21, 49. The change of tablets is then the first
// change of the table.
func TestStreamsOfATableThatWasNeverWrittenToCloseToo(t *testing.T) {
	for name, change := range map[string]func(*fixture) error{
		"split": func(f *fixture) error { return f.SplitTablet(tableT, []byte("g")) },
		"merge": func(f *fixture) error { return f.MergeTablets(tableT, []byte("m")) },
		"shift": func(f *fixture) error { return f.ShiftTablets(tableT, []byte("m"), []byte("g")) },
		"move":  func(f *fixture) error { return f.MoveTablet(tableT, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, emulator.Options{})
				f.create(t, streamed("m"))
				r := f.open(t, ",m", fromTime(time.Now()))
				r.position(t) // the stream is open
				if err := change(f); err != nil {
					t.Fatal(err)
				}
				if res := r.next(t); res.GetCloseStream().GetStatus().GetCode() != 11 {
					t.Errorf("%v", res)
				}
			})
		})
	}
}

// Change-stream cases: 49.
func TestAMoveClosesOnlyStreamsThatAreOpen(t *testing.T) {
	f := startStreamed(t)
	f.set(t, "a", "1")
	r := f.open(t, ",", fromTime(noon))
	_, tok := r.values(t, 1)
	if err := f.MoveTablet(tableT, nil); err != nil {
		t.Fatal(err)
	}
	c, _ := r.closes(t)
	equal(t, "successors", successors(c), []string{", > ,"})
	f.set(t, "a", "2")
	for _, tokens := range []*token{tok, c.ContinuationTokens[0]} {
		got, _ := f.open(t, ",", fromTokens(tokens)).values(t, 1)
		equal(t, "resumed", got, []string{"a=2"})
	}
}

// Change-stream cases: 25.
func TestAMisalignedOpenClosesAtOnceAndAReformedTabletStreams(t *testing.T) {
	f := startStreamed(t, "m")
	f.set(t, "a", "1")
	_, tok := f.open(t, ",m", fromTime(noon)).values(t, 1)
	if err := f.MergeTablets(tableT, []byte("m")); err != nil {
		t.Fatal(err)
	}
	c, _ := f.open(t, ",m", fromTokens(tok)).closes(t)
	equal(t, "merged", successors(c), []string{",m > ,"})
	c, _ = f.open(t, "b,c", fromTime(noon)).closes(t)
	equal(t, "a start time", successors(c), []string{"b,c > ,"})
	if err := f.SplitTablet(tableT, []byte("m")); err != nil {
		t.Fatal(err)
	}
	f.set(t, "a", "2")
	got, _ := f.open(t, ",m", fromTokens(tok)).values(t, 1)
	equal(t, "formed again", got, []string{"a=2"})
}

// Change-stream cases: 22, 23.
func TestACloseTakesTheFormsThatTheServiceHasHad(t *testing.T) {
	f := startStreamed(t, "m")
	if err := f.SetStream(tableT, emulator.StreamSettings{OmitNewPartitions: true, WideTokens: true}); err != nil {
		t.Fatal(err)
	}
	r := f.open(t, ",m", fromTime(noon))
	if err := f.SplitTablet(tableT, []byte("g")); err != nil {
		t.Fatal(err)
	}
	c, _ := r.closes(t)
	equal(t, "split", successors(c), []string{",g > none", "g,m > none"})
	r = f.open(t, "g,m", fromTokens(c.ContinuationTokens[1]))
	if err := f.MergeTablets(tableT, []byte("g")); err != nil {
		t.Fatal(err)
	}
	c, _ = r.closes(t)
	equal(t, "merge", successors(c), []string{",m > ,m"})
	// The consumer cuts the token to its partition; so cut it is good.
	c.ContinuationTokens[0].Partition = span("g,m").proto()
	c, _ = f.open(t, "g,m", fromTokens(c.ContinuationTokens[0])).closes(t)
	equal(t, "the token, cut", successors(c), []string{",m > ,m"})
}
