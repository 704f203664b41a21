package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// The model: writers put numbered values into rows, while someone changes the
// tablets, and a reference consumer follows the protocol. It opens what it has
// tokens for, stops at random after any message, resumes from the last token
// that it stored, and waits for the neighbours' tokens at a merge.
type streamModel struct {
	t     *testing.T
	f     *fixture
	began time.Time

	mu      sync.Mutex
	changed sync.Cond           // records or resumes have
	written map[string][]string // row → values in the order in which they were acknowledged
	seen    map[string][]string // row → values in the order of stored records
	records int

	readers sync.WaitGroup
	live    map[span]bool
	open    map[span]func(*changeRequest) // partitions to open, and from where
	waiting map[span]map[span]*token      // partitions that wait for tokens of parts
	resumes int
	closes  int
}

// storeRecord takes a record and its position at once, as a consumer with one
// transaction for both does.
func (m *streamModel) storeRecord(c *dataChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records++
	m.changed.Broadcast()
	for _, chunk := range c.Chunks {
		m.seen[string(c.RowKey)] = append(m.seen[string(c.RowKey)], string(chunk.Mutation.GetSetCell().GetValue()))
	}
}

// start opens every partition that can be opened. The caller holds m.mu.
func (m *streamModel) start(ctx context.Context) {
	for s, tokens := range m.waiting {
		var have []*token
		for _, tok := range tokens {
			have = append(have, tok)
		}
		if tiles(have, s) {
			delete(m.waiting, s)
			m.open[s] = fromTokens(have...)
		}
	}
	for s, from := range m.open {
		if m.live[s] {
			continue // the same keys once more, before the old reader is done
		}
		delete(m.open, s)
		m.live[s] = true
		m.readers.Go(func() { m.follow(ctx, s, from) })
	}
}

// tiles reports whether tokens' partitions cover a partition exactly.
func tiles(tokens []*token, s span) bool {
	ranges := make([]span, len(tokens))
	for i, tok := range tokens {
		ranges[i] = spanOf(tok.Partition)
	}
	slices.Sort(ranges)
	r := s.proto().RowRange
	key := string(r.GetStartKeyClosed())
	for i, part := range ranges {
		p := part.proto().RowRange
		if string(p.GetStartKeyClosed()) != key || i > 0 && key == "" {
			return false
		}
		key = string(p.GetEndKeyOpen())
	}
	return len(ranges) > 0 && key == string(r.GetEndKeyOpen())
}

// follow reads one partition until it closes, over as many calls as it takes.
func (m *streamModel) follow(ctx context.Context, s span, from func(*changeRequest)) {
	random := rand.New(rand.NewPCG(uint64(len(s)), rand.Uint64()))
	for ctx.Err() == nil {
		closed, err := m.call(ctx, s, &from, 1+random.IntN(20))
		if err != nil && ctx.Err() == nil {
			m.t.Errorf("%s: %v", s, err)
			return
		}
		if closed != nil {
			m.successors(ctx, s, closed)
			return
		}
	}
}

// call is one call, which ends after at most n messages or with the close.
func (m *streamModel) call(parent context.Context, s span, from *func(*changeRequest), n int) (*bigtablepb.ReadChangeStreamResponse_CloseStream, error) {
	ctx, stop := context.WithCancel(parent)
	defer stop()
	req := &changeRequest{TableName: tableT, Partition: s.proto()}
	(*from)(req)
	beating(3 * time.Millisecond)(req)
	stream, err := m.f.data.ReadChangeStream(ctx, req)
	if err != nil {
		return nil, err
	}
	for range n {
		res, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		switch {
		case res.GetHeartbeat() != nil:
			*from = fromTokens(res.GetHeartbeat().ContinuationToken)
		case res.GetCloseStream() != nil:
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("after the close: %w", err)
			}
			return res.GetCloseStream(), nil
		default:
			c := res.GetDataChange()
			if !c.GetDone() {
				return nil, fmt.Errorf("no whole record: %v", res)
			}
			m.storeRecord(c)
			*from = fromTokens(&token{Partition: s.proto(), Token: c.Token})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resumes++
	m.changed.Broadcast()
	if m.resumes%callsPerReconcile == 0 {
		m.reconcile(parent)
	}
	return nil, nil
}

// callsPerReconcile is after how many calls the consumer looks after tokens
// that wait.
const callsPerReconcile = 20

// successors stores the tokens of a close for the partitions they lead to.
func (m *streamModel) successors(ctx context.Context, s span, c *bigtablepb.ReadChangeStreamResponse_CloseStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closes++
	delete(m.live, s)
	if c.Status.Code != 11 || !tiles(c.ContinuationTokens, s) || len(c.NewPartitions) != len(c.ContinuationTokens) {
		m.t.Errorf("%s: %v", s, c)
		return
	}
	for i, tok := range c.ContinuationTokens {
		target := spanOf(c.NewPartitions[i])
		if m.waiting[target] == nil {
			m.waiting[target] = map[span]*token{}
		}
		m.waiting[target][spanOf(tok.Partition)] = tok
	}
	m.start(ctx)
	if len(m.live) == 0 {
		m.reconcile(ctx)
	}
}

// reconcile frees tokens that wait for a neighbour which will never close: it
// opens them by their own ranges, and the service says where those belong now.
// The caller holds m.mu.
func (m *streamModel) reconcile(ctx context.Context) {
	for target, tokens := range m.waiting {
		for part, tok := range tokens {
			delete(tokens, part)
			m.open[part] = fromTokens(tok)
		}
		delete(m.waiting, target)
	}
	m.start(ctx)
}

func (m *streamModel) write(random *rand.Rand, writer, n int) error {
	// Each writer has rows of its own, so that it knows the order in each.
	key := fmt.Sprintf("%c%d", 'a'+random.IntN(20), writer)
	value := strconv.Itoa(n)
	_, err := m.f.data.MutateRow(m.t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, RowKey: []byte(key),
		Mutations: []*bigtablepb.Mutation{setCell("a", "q", 1000, []byte(value))}})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written[key] = append(m.written[key], value)
	return nil
}

func (m *streamModel) changeTablets(random *rand.Rand) {
	key := func() []byte { return []byte{byte('a' + random.IntN(21))} }
	var boundary []byte // of two tablets, where there are two
	if tablets, err := m.f.Tablets(tableT); err == nil && len(tablets) > 1 {
		boundary = tablets[1+random.IntN(len(tablets)-1)].Start
	}
	// What cannot be done where it falls is refused.
	switch random.IntN(5) {
	case 0, 1:
		_ = m.f.SplitTablet(tableT, key())
	case 2:
		_ = m.f.MergeTablets(tableT, boundary)
	case 3:
		_ = m.f.ShiftTablets(tableT, boundary, key())
	case 4:
		_ = m.f.MoveTablet(tableT, key())
	}
}

// Every mutation of every row is seen once and in order, whatever happens to
// the tablets and to the consumer's calls; what all partitions gave together is
// the log.
func TestAConsumerThatFollowsTheProtocolSeesEveryMutationOnceAndInOrder(t *testing.T) {
	steps := 2000
	if os.Getenv("BTF_SOAK") != "" {
		steps = 100_000
	}
	const writers = 8
	m := &streamModel{t: t, f: start(t, emulator.Options{}), written: map[string][]string{}, seen: map[string][]string{},
		live: map[span]bool{}, open: map[span]func(*changeRequest){}, waiting: map[span]map[span]*token{}}
	m.changed.L = &m.mu
	m.f.create(t, streamed("e", "m"))
	m.began = m.f.Now()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, s := range m.f.partitions(t) {
		m.open[s] = fromTime(m.began)
	}
	m.mu.Lock()
	m.start(ctx)
	m.mu.Unlock()

	var working sync.WaitGroup
	for w := range writers {
		working.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for n := range steps / writers {
				if err := m.write(random, w, n); err != nil {
					t.Error(err)
					return
				}
				if random.IntN(10) == 0 {
					m.changeTablets(random)
				}
			}
		})
	}
	working.Wait()
	m.drain(steps)
	stop()
	m.readers.Wait()
	m.compare(t, steps)
	t.Logf("%d records, %d resumes, %d closes", m.records, m.resumes, m.closes)
}

// drain waits until the consumer has as many records as were written and a
// few more of its calls have ended, with which what is served twice would come.
// It gives up after many calls without a record.
func (m *streamModel) drain(want int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for calls, records := m.resumes, m.records; ; m.changed.Wait() {
		if m.records > records {
			calls, records = m.resumes, m.records
		}
		if idle := m.resumes - calls; m.records >= want && idle > 20 || idle > 5000 {
			return
		}
	}
}

func (m *streamModel) compare(t *testing.T, steps int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records != steps {
		t.Errorf("%d records of %d", m.records, steps)
	}
	for key, want := range m.written {
		if !slices.Equal(m.seen[key], want) {
			t.Errorf("row %s: %q, want %q", key, m.seen[key], want)
		}
	}
	if len(m.seen) > len(m.written) {
		t.Errorf("%d rows, %d were written", len(m.seen), len(m.written))
	}
}
