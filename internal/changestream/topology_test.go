package changestream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

const alphabet = "abcdefghijklmnop"

// service is a model of a table with a change stream: tablets, and one log of changes. The
// value of a token is the number of changes of the log that lie before it.
type service struct {
	bounds []string // where tablets begin, sorted; the first begins at ""
	log    []change
	now    time.Time
}

type change struct {
	key string
	at  time.Time
}

func (s *service) tablets() []rowrange.Range {
	var out []rowrange.Range
	for i, start := range s.bounds {
		r := rowrange.Range{Start: start}
		if i+1 < len(s.bounds) {
			r.End = s.bounds[i+1]
		}
		out = append(out, r)
	}
	return out
}

// cut begins or ends a tablet at a bound.
func (s *service) cut(bound string) {
	if i, found := slices.BinarySearch(s.bounds, bound); found {
		s.bounds = slices.Delete(s.bounds, i, i+1)
	} else {
		s.bounds = slices.Insert(s.bounds, i, bound)
	}
}

// position returns the tokens' or the start's place in the log for a key.
func (s *service) position(key string, tokens []Token, start time.Time) int {
	if tokens == nil {
		i, _ := slices.BinarySearchFunc(s.log, start, func(c change, at time.Time) int { return c.at.Compare(at) })
		return i
	}
	for _, t := range tokens {
		if t.Range.Contains(key) {
			return position(t)
		}
	}
	panic("no token of " + key)
}

func position(t Token) int {
	n, err := strconv.Atoi(t.Value)
	if err != nil {
		panic(err)
	}
	return n
}

// partition is a partition in the model of the ledger.
type partition struct {
	id int
	Opening
}

// consumer is a model of the ledger and of the processes that work with it.
type consumer struct {
	*service
	t          *rapid.T
	partitions map[int]*partition
	pending    map[rowrange.Range]*Pending
	versions   map[rowrange.Range]int // of pending partitions, raised by each change
	missing    []Missing
	ids        int
	delivered  map[string]map[int]bool // changes of each key that the sink has
	start      time.Time
	initial    bool
	lost       map[int]bool // of partitions that sabotage has removed
}

func (c *consumer) ranges(but int) []rowrange.Range {
	var out []rowrange.Range
	for id, p := range c.partitions {
		if id != but {
			out = append(out, p.Range)
		}
	}
	return out
}

func (c *consumer) create(o Opening) {
	c.ids++
	c.partitions[c.ids] = &partition{c.ids, o}
}

// choose returns one of the partitions.
func (c *consumer) choose() *partition {
	ids := make([]int, 0, len(c.partitions))
	for id := range c.partitions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		return nil
	}
	copied := *c.partitions[rapid.SampledFrom(ids).Draw(c.t, "partition")]
	return &copied
}

// read reads p, as its holder knows it, to the end of the log, and returns the position
// after it.
func (c *consumer) read(p *partition) Token {
	for i, change := range c.log {
		if p.Range.Contains(change.key) && i >= c.position(change.key, p.Tokens, p.Start) {
			if c.delivered[change.key] == nil {
				c.delivered[change.key] = map[int]bool{}
			}
			c.delivered[change.key][i] = true
		}
	}
	return Token{p.Range, strconv.Itoa(len(c.log))}
}

// commit moves the position of p, unless it has been replaced.
func (c *consumer) commit(p *partition, at Token) {
	if c.partitions[p.id] != nil {
		c.partitions[p.id].Opening = Opening{Range: p.Range, Tokens: []Token{at}, LowWatermark: c.now}
	}
}

// visit is one visit of a holder: it reads, and may die after each step. stale is what it
// knew of the partition, maybe long ago.
func (c *consumer) visit(stale *partition) {
	aligned := slices.Contains(c.tablets(), stale.Range)
	at := Token{}
	if aligned { // otherwise the service ends the stream at once
		at = c.read(stale)
		if rapid.Bool().Draw(c.t, "dies before its commit") {
			return
		}
		c.commit(stale, at)
		if rapid.Bool().Draw(c.t, "the partition stays") {
			return
		}
		c.cut(rapid.StringMatching("["+alphabet[1:]+"]").Draw(c.t, "bound"))
		if slices.Contains(c.tablets(), stale.Range) && rapid.Bool().Draw(c.t, "no move") {
			return
		}
	}
	closed, err := ReadClose(stale.Range, c.close(stale, at))
	if err != nil {
		c.t.Fatal(err)
	}
	c.handOver(stale, closed)
	if rapid.IntRange(0, 9).Draw(c.t, "the reply is lost") == 0 {
		c.handOver(stale, closed)
	}
}

// close is what the service sends when a stream ends: a token for each tablet that has
// keys of it now.
func (c *consumer) close(p *partition, at Token) *bigtablepb.ReadChangeStreamResponse_CloseStream {
	out := &bigtablepb.ReadChangeStreamResponse_CloseStream{Status: &status.Status{Code: int32(codes.OutOfRange)}}
	named := rapid.Bool().Draw(c.t, "the child's range is named") // as the service has been seen to do
	for _, tablet := range c.tablets() {
		part, some := rowrange.Intersect(tablet, p.Range)
		if !some {
			continue
		}
		pos := at.Value
		if pos == "" { // opened on a range that is no tablet: nothing was read
			first := len(c.log)
			for _, k := range strings.Split(alphabet, "") {
				if part.Contains(k) {
					first = min(first, c.position(k, p.Tokens, p.Start))
				}
			}
			pos = strconv.Itoa(first)
		}
		if named {
			part = tablet
		}
		out.ContinuationTokens = append(out.ContinuationTokens, &bigtablepb.StreamContinuationToken{
			Partition: &bigtablepb.StreamPartition{RowRange: ProtoRange(part)}, Token: pos,
		})
		out.NewPartitions = append(out.NewPartitions, &bigtablepb.StreamPartition{RowRange: ProtoRange(tablet)})
	}
	return out
}

// handOver is the ledger's transaction.
func (c *consumer) handOver(p *partition, closed Closed) {
	if c.partitions[p.id] == nil {
		return // another holder has done it
	}
	h := HandOver(closed.Successors, p.LowWatermark, c.now, func(r rowrange.Range) *Pending { return c.pending[r] }, c.ranges(p.id))
	delete(c.partitions, p.id)
	for _, o := range h.Open {
		c.create(o)
	}
	for _, w := range h.Wait {
		c.pending[w.Target] = &w
		c.versions[w.Target]++
	}
	for _, r := range h.Forget {
		delete(c.pending, r)
		c.versions[r]++
	}
}

// topology is what a reconciliation sees.
func (c *consumer) topology() Topology {
	t := Topology{Service: c.tablets(), Missing: c.missing, Start: c.start, Initial: c.initial}
	for _, p := range c.partitions {
		t.Partitions = append(t.Partitions, Held{p.Range, p.LowWatermark})
	}
	for _, p := range c.pending {
		t.Pending = append(t.Pending, *p)
	}
	return t
}

// reconcile decides, lets others work in between, and applies what still holds.
func (c *consumer) reconcile(between func()) {
	versions := map[rowrange.Range]int{}
	for r, v := range c.versions {
		versions[r] = v
	}
	r := Reconcile(c.topology(), DefaultGraces(), c.now)
	between()
	c.missing = r.Missing
	for _, rec := range r.Recover {
		c.recover(rec, versions)
	}
	for _, s := range r.Stale {
		if p := c.pending[s.Target]; p != nil && c.versions[s.Target] == versions[s.Target] {
			p.Tokens = slices.DeleteFunc(slices.Clone(p.Tokens), func(t Token) bool { return t.Range == s.Range })
			if len(p.Tokens) == 0 {
				delete(c.pending, s.Target)
			}
		}
	}
	if c.initial && len(rowrange.Subtract(rowrange.Range{}, append(c.ranges(0), waitingRanges(c.pending)...))) == 0 {
		c.initial = false
	}
}

func waitingRanges(pending map[rowrange.Range]*Pending) []rowrange.Range {
	var out []rowrange.Range
	for _, p := range pending {
		for _, t := range p.Tokens {
			out = append(out, t.Range)
		}
	}
	return out
}

// recover opens a range, unless a pending partition that it takes from has changed.
func (c *consumer) recover(rec Recovery, versions map[rowrange.Range]int) {
	for _, r := range rec.From {
		if c.versions[r] != versions[r] {
			return
		}
	}
	for _, r := range rec.From {
		p := c.pending[r]
		p.Tokens = slices.DeleteFunc(slices.Clone(p.Tokens), func(t Token) bool { return slices.Contains(rec.Tokens, t) })
		versions[r]++ // its own change
		if c.versions[r]++; len(p.Tokens) == 0 {
			delete(c.pending, r)
		}
	}
	c.create(rec.Opening)
}

// check holds the ledger against the guarantee.
func (c *consumer) check() {
	for _, k := range strings.Split(alphabet, "") {
		places := 0
		first := -1 // the earliest place in the log from which it will be read
		for _, p := range c.partitions {
			if p.Range.Contains(k) {
				places++
				first = c.position(k, p.Tokens, p.Start)
			}
		}
		if places > 1 {
			c.t.Fatalf("%d partitions hold %q: %v", places, k, c.ranges(0))
		}
		if places == 0 {
			for _, p := range c.pending {
				for _, t := range p.Tokens {
					if t.Range.Contains(k) && (first < 0 || position(t) < first) {
						first = position(t)
					}
				}
			}
		}
		if first < 0 {
			if c.initial || c.lost != nil {
				continue
			}
			c.t.Fatalf("no place reads %q: partitions %v, pending %v", k, c.ranges(0), waitingRanges(c.pending))
		}
		for i, change := range c.log[:first] {
			if change.key == k && !change.at.Before(c.start) && !c.delivered[k][i] {
				c.t.Fatalf("change %d of %q is not delivered, and reading goes on at %d", i, k, first)
			}
		}
	}
}

func newConsumer(t *rapid.T) *consumer {
	now := time.Date(2026, 8, 30, 10, 0, 0, 0, time.UTC)
	return &consumer{
		service: &service{bounds: []string{""}, now: now}, t: t, start: now, initial: true, partitions: map[int]*partition{},
		pending: map[rowrange.Range]*Pending{}, versions: map[rowrange.Range]int{}, delivered: map[string]map[int]bool{},
	}
}

// step does one random thing.
func (c *consumer) step(kept *[]*partition) {
	switch rapid.IntRange(0, 9).Draw(c.t, "step") {
	case 0, 1:
		c.log = append(c.log, change{rapid.StringMatching("["+alphabet+"]").Draw(c.t, "key"), c.now})
	case 2, 3:
		c.cut(rapid.StringMatching("["+alphabet[1:]+"]").Draw(c.t, "bound"))
	case 4, 5, 6:
		if p := c.choose(); p != nil {
			*kept = append(*kept, p)
			c.visit(p)
		}
	case 7: // a holder that was paused wakes
		if len(*kept) > 0 {
			c.visit(rapid.SampledFrom(*kept).Draw(c.t, "paused"))
		}
	case 8:
		c.reconcile(func() {
			for range rapid.IntRange(0, 2).Draw(c.t, "meanwhile") {
				if p := c.choose(); p != nil {
					c.visit(p)
					c.check()
				}
			}
		})
	case 9:
		c.now = c.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(c.t, "seconds")) * time.Second)
	}
	c.check()
}

// settle lets everything come to rest.
func (c *consumer) settle() {
	for range 60 {
		c.now = c.now.Add(time.Minute)
		c.reconcile(func() {})
		ids := make([]int, 0, len(c.partitions))
		for id := range c.partitions {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids {
			p := *c.partitions[id]
			if slices.Contains(c.tablets(), p.Range) {
				c.commit(&p, c.read(&p))
				continue
			}
			closed, err := ReadClose(p.Range, c.close(&p, Token{}))
			if err != nil {
				c.t.Fatal(err)
			}
			c.handOver(&p, closed)
		}
		c.check()
	}
	got := c.ranges(0)
	slices.SortFunc(got, compareRanges)
	if !slices.Equal(got, c.tablets()) {
		c.t.Fatalf("at rest the ledger holds %v, the service %v", got, c.tablets())
	}
	if len(c.pending) > 0 {
		c.t.Fatalf("at rest %d partitions are pending", len(c.pending))
	}
	for i, change := range c.log {
		if !change.at.Before(c.start) && !c.delivered[change.key][i] {
			c.t.Fatalf("change %d of %q was never delivered", i, change.key)
		}
	}
}

// Whatever happens, every key has exactly one place that will read it, from a position not
// later than the last one acknowledged, and everything is delivered in the end.
//
// covers: CS-08, CS-09, CS-10, CS-11, CS-28
// stream-case: 19, 20, 21, 22, 26, 29, 30, 49, 50
func TestEveryKeyHasOnePlaceThatReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConsumer(t)
		var kept []*partition
		c.reconcile(func() {})
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			c.step(&kept)
		}
		c.settle()
	})
}

// A ledger that has lost partitions, as one restored from a backup has, finds them again:
// what was lost is read from an hour before the low watermark.
//
// covers: CS-11
// stream-case: 27, 28
func TestLostPartitionsAreReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConsumer(t)
		var kept []*partition
		c.reconcile(func() {})
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			c.step(&kept)
		}
		if p := c.choose(); p != nil {
			c.lost = map[int]bool{p.id: true}
			delete(c.partitions, p.id)
		}
		c.settle()
	})
}

func tokensOf(texts ...string) []Token {
	var out []Token
	for _, text := range texts {
		out = append(out, Token{Range: rangeOf(text), Value: text})
	}
	return out
}

// rangeOf reads "a-c", "-c" or "a-".
func rangeOf(text string) rowrange.Range {
	start, end, _ := strings.Cut(text, "-")
	return rowrange.Range{Start: start, End: end}
}

func rangesOf(texts ...string) []rowrange.Range {
	var out []rowrange.Range
	for _, text := range texts {
		out = append(out, rangeOf(text))
	}
	return out
}

func TestTokensTileOnlyWhatTheyHoldExactly(t *testing.T) {
	for _, c := range []struct {
		target string
		tokens string
		want   string // "" for none
	}{
		{"-", "-", "-"},
		{"-", "-b b-", "-b b-"},
		{"-", "b- -b", "-b b-"},
		{"-", "-b c-", ""},
		{"-", "-b", ""},
		{"-", "b-", ""},
		{"a-c", "a-b b-c", "a-b b-c"},
		{"a-c", "a-b b-d", ""},
		{"a-c", "-b b-c", ""},
		{"a-c", "a-c a-b b-c", "a-c"},
		{"a-c", "a-b a-m b-c", "a-b b-c"},
		{"b-", "b-c c-", "b-c c-"},
		{"b-", "-c c-", ""},
	} {
		got, ok := Tile(rangeOf(c.target), tokensOf(strings.Fields(c.tokens)...))
		var texts []string
		for _, token := range got {
			texts = append(texts, token.Value)
		}
		if ok != (c.want != "") || ok && strings.Join(texts, " ") != c.want {
			t.Errorf("%s from %s: %v %v, want %q", c.target, c.tokens, texts, ok, c.want)
		}
	}
}

// stream-case: 1
func TestTheServicesPartitionsMustHoldEveryKeyOnce(t *testing.T) {
	for text, want := range map[string]bool{"-": true, "-b b-": true, "b- -b": true, "-b c-": false, "-b b-c": false, "-c b-": false, "": false, "- -": false} {
		if err := CheckPartitions(rangesOf(strings.Fields(text)...)); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, r := range []*bigtablepb.RowRange{
		{},
		ProtoRange(rowrange.Range{}),
		{StartKey: &bigtablepb.RowRange_StartKeyClosed{}},
	} {
		if got, err := ReadRange(r); err != nil || got != (rowrange.Range{}) {
			t.Errorf("%v: %v %v", r, got, err)
		}
	}
	for _, r := range []*bigtablepb.RowRange{
		{StartKey: &bigtablepb.RowRange_StartKeyOpen{StartKeyOpen: []byte("a")}},
		{EndKey: &bigtablepb.RowRange_EndKeyClosed{EndKeyClosed: []byte("a")}},
		ProtoRange(rowrange.Range{Start: "b", End: "a"}),
	} {
		if got, err := ReadRange(r); err == nil {
			t.Errorf("%v: %v", r, got)
		}
	}
	if r := ProtoRange(rowrange.Range{}); r.GetStartKey() == nil || r.GetEndKey() == nil {
		t.Error("a bound of a request is not set")
	}
}

func closeOf(code codes.Code, tokens, targets string) *bigtablepb.ReadChangeStreamResponse_CloseStream {
	out := &bigtablepb.ReadChangeStreamResponse_CloseStream{Status: &status.Status{Code: int32(code)}}
	for _, t := range tokensOf(strings.Fields(tokens)...) {
		out.ContinuationTokens = append(out.ContinuationTokens, &bigtablepb.StreamContinuationToken{
			Partition: &bigtablepb.StreamPartition{RowRange: ProtoRange(t.Range)}, Token: t.Value,
		})
	}
	for _, r := range rangesOf(strings.Fields(targets)...) {
		out.NewPartitions = append(out.NewPartitions, &bigtablepb.StreamPartition{RowRange: ProtoRange(r)})
	}
	return out
}

// stream-case: 19, 20, 21, 22, 23, 24
func TestACloseSaysWhereEveryKeyGoesOrIsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		close *bigtablepb.ReadChangeStreamResponse_CloseStream
		want  string // target<token's range …; "finished"; "" for an error
	}{
		{"the end", closeOf(codes.OK, "", ""), "finished"},
		{"no status is the end", &bigtablepb.ReadChangeStreamResponse_CloseStream{}, "finished"},
		{"the end with a token", closeOf(codes.OK, "b-d", ""), ""},
		{"the end with a partition", closeOf(codes.OK, "", "b-d"), ""},
		{"split", closeOf(codes.OutOfRange, "b-c c-d", "b-c c-d"), "b-c<b-c c-d<c-d"},
		{"split, no partitions named", closeOf(codes.OutOfRange, "b-c c-d", ""), "b-c<b-c c-d<c-d"},
		{"merge", closeOf(codes.OutOfRange, "b-d", "a-e"), "a-e<b-d"},
		{"merge, the child's range is named", closeOf(codes.OutOfRange, "a-e", "a-e"), "a-e<b-d"},
		{"merge, the child's range alone", closeOf(codes.OutOfRange, "a-e", ""), "a-e<b-d"},
		{"shift", closeOf(codes.OutOfRange, "b-c c-d", "a-c c-e"), "a-c<b-c c-e<c-d"},
		{"shift, the children's ranges are named", closeOf(codes.OutOfRange, "a-c c-e", "a-c c-e"), "a-c<b-c c-e<c-d"},
		{"move", closeOf(codes.OutOfRange, "b-d", "b-d"), "b-d<b-d"},
		{"no token", closeOf(codes.OutOfRange, "", "b-d"), ""},
		{"nothing", closeOf(codes.OutOfRange, "", ""), ""},
		{"fewer partitions", closeOf(codes.OutOfRange, "b-c c-d", "b-c"), ""},
		{"more partitions", closeOf(codes.OutOfRange, "b-d", "b-c c-d"), ""},
		{"a gap", closeOf(codes.OutOfRange, "b-c", "b-c"), ""},
		{"twice", closeOf(codes.OutOfRange, "b-d c-d", "b-d c-d"), ""},
		{"keys of others", closeOf(codes.OutOfRange, "b-d e-f", "b-d e-f"), ""},
		{"a partition without the token's keys", closeOf(codes.OutOfRange, "b-d", "b-c"), ""},
		{"another status", closeOf(codes.Internal, "b-d", "b-d"), ""},
	} {
		closed, err := ReadClose(rangeOf("b-d"), c.close)
		var parts []string
		for _, s := range closed.Successors {
			parts = append(parts, fmt.Sprintf("%s-%s<%s-%s", s.Target.Start, s.Target.End, s.Token.Range.Start, s.Token.Range.End))
		}
		got := strings.Join(parts, " ")
		if closed.Finished {
			got = "finished"
		}
		if (err != nil) != (c.want == "") || got != c.want {
			t.Errorf("%s: %q %v, want %q", c.name, got, err, c.want)
		}
	}
}

var noon = time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)

// A key that has no token is read from a time, but not before it was missed for 20
// minutes, and once.
//
// covers: CS-11
// stream-case: 27, 28
func TestAKeyWithoutATokenWaitsTwentyMinutes(t *testing.T) {
	for _, gap := range []string{"-b", "b-d", "d-"} {
		service := rangesOf("-b", "b-d", "d-")
		top := Topology{Service: service, Start: noon.Add(-24 * time.Hour)}
		for _, r := range service {
			if r != rangeOf(gap) {
				top.Partitions = append(top.Partitions, Held{r, noon.Add(-time.Minute)})
			}
		}
		for minute := range 25 {
			r := Reconcile(top, DefaultGraces(), noon.Add(time.Duration(minute)*time.Minute))
			top.Missing = r.Missing
			if minute < 20 {
				if len(r.Recover) > 0 || len(r.Missing) != 1 || r.Missing[0].Range != rangeOf(gap) {
					t.Fatalf("%s, minute %d: %+v", gap, minute, r)
				}
				continue
			}
			if minute == 20 {
				if len(r.Recover) != 1 || len(r.Missing) != 0 {
					t.Fatalf("%s, minute %d: %+v", gap, minute, r)
				}
				rec := r.Recover[0]
				if rec.Range != rangeOf(gap) || rec.Tokens != nil || !rec.Start.Equal(noon.Add(-61*time.Minute)) {
					t.Fatalf("%s: %+v", gap, rec)
				}
				top.Partitions = append(top.Partitions, Held{rec.Range, rec.LowWatermark})
				continue
			}
			if len(r.Recover) > 0 {
				t.Fatalf("%s, minute %d: opened again: %+v", gap, minute, r.Recover)
			}
		}
	}
}

// One look is not enough, however long ago the key was missed: the second may find it.
func TestAKeyIsMissedTwiceBeforeItIsRecovered(t *testing.T) {
	top := Topology{Service: rangesOf("-b", "b-"), Partitions: []Held{{rangeOf("-b"), noon}}}
	r := Reconcile(top, DefaultGraces(), noon)
	if len(r.Recover) > 0 || len(r.Missing) != 1 {
		t.Fatalf("%+v", r)
	}
	top.Missing = r.Missing
	top.Partitions = append(top.Partitions, Held{rangeOf("b-"), noon})
	if r = Reconcile(top, DefaultGraces(), noon.Add(time.Hour)); len(r.Recover)+len(r.Missing) > 0 {
		t.Fatalf("%+v", r)
	}
}

// stream-case: 26
func TestWaitingTokensAreUsedAfterTwoMinutes(t *testing.T) {
	pending := Pending{Target: rangeOf("a-c"), Tokens: tokensOf("a-b"), LowWatermark: noon, UpdatedAt: noon}
	top := Topology{
		Service:    rangesOf("-a", "a-b", "b-"),
		Partitions: []Held{{rangeOf("-a"), noon}, {rangeOf("b-"), noon}},
		Pending:    []Pending{pending},
	}
	top.Missing = Reconcile(top, DefaultGraces(), noon).Missing
	r := Reconcile(top, DefaultGraces(), noon.Add(119*time.Second))
	if len(r.Recover) > 0 || !slices.Equal(r.Awaited, []int{1}) {
		t.Fatalf("%+v", r)
	}
	top.Missing = r.Missing
	r = Reconcile(top, DefaultGraces(), noon.Add(2*time.Minute))
	if len(r.Recover) != 1 || r.Recover[0].Range != rangeOf("a-b") || !slices.Equal(r.Recover[0].Tokens, tokensOf("a-b")) || len(r.Missing) > 0 {
		t.Fatalf("%+v", r)
	}
}

// covers: CS-16
func TestCompletedRangesAreNotMissing(t *testing.T) {
	top := Topology{Service: rangesOf("-b", "b-"), Partitions: []Held{{rangeOf("-b"), noon}}, Completed: rangesOf("b-")}
	for minute := range 30 {
		r := Reconcile(top, DefaultGraces(), noon.Add(time.Duration(minute)*time.Minute))
		if len(r.Recover)+len(r.Missing) > 0 {
			t.Fatalf("%+v", r)
		}
	}
}

// stream-case: 51
func TestAnInitStartsEveryKeyAtOneTime(t *testing.T) {
	top := Topology{Service: rangesOf("-b", "b-d", "d-"), Partitions: []Held{{rangeOf("b-c"), noon}}, Start: noon, Initial: true}
	top.Pending = []Pending{{Target: rangeOf("d-"), Tokens: tokensOf("d-e")}}
	var got []string
	for _, r := range Reconcile(top, DefaultGraces(), noon.Add(time.Hour)).Recover {
		if r.Tokens != nil || !r.Start.Equal(noon) {
			t.Errorf("%+v", r)
		}
		got = append(got, r.Range.Start+"-"+r.Range.End)
	}
	if want := []string{"-b", "c-d", "e-"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// covers: CS-12
// stream-case: 38
func TestWhatTheServiceForgetsIsComputed(t *testing.T) {
	const retention = 24 * time.Hour
	edge := noon.Add(-retention + time.Minute)
	for low, want := range map[time.Time]bool{edge: false, edge.Add(-time.Nanosecond): true, noon: false, {}: true} {
		if Expired(low, noon, retention) != want {
			t.Errorf("%v: %v", low, !want)
		}
	}
	for start, want := range map[time.Time]time.Time{
		edge.Add(-time.Hour): edge, edge.Add(time.Hour): edge.Add(time.Hour), noon.Add(1500 * time.Nanosecond): noon.Add(time.Microsecond),
	} {
		if got := Clamp(start, noon, retention); !got.Equal(want) {
			t.Errorf("%v: %v, want %v", start, got, want)
		}
	}
}

func BenchmarkReconcile10000(b *testing.B) {
	var top Topology
	last := ""
	for i := range 10_000 {
		next := fmt.Sprintf("%05d", i+1)
		if i == 9_999 {
			next = ""
		}
		top.Service = append(top.Service, rowrange.Range{Start: last, End: next})
		top.Partitions = append(top.Partitions, Held{rowrange.Range{Start: last, End: next}, noon})
		last = next
	}
	for b.Loop() {
		Reconcile(top, DefaultGraces(), noon)
	}
}
