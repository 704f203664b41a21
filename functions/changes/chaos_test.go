package changes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// disorder is how much happens in twenty minutes of simulated time.
type disorder struct {
	seed      uint64
	perSecond int           // changes
	move      time.Duration // between two changes of tablets
	// The ledger is backed up after backup, and restored after restore; 0: it is not.
	backup, restore time.Duration
}

// Processes die between any two of their writes, pause past their leases and lose replies;
// streams are cut off, sinks fail, and tablets split, merge, shift and move. Every change
// arrives, those of a row in order but for repeats, of which there are no more than the dead had
// sent since their last commits, a commit interval earlier at most; and in the end the ledger
// holds each key once.
//
// covers: CS-08, CS-09, CS-10, CS-11, CS-25, CS-26, CS-28
// stream-case: 19, 20, 21, 26, 29, 30, 31, 34, 42, 49, 50
func TestChangesSurviveTheirReaders(t *testing.T) {
	seeds, d := 1, disorder{perSecond: 17, move: 8 * time.Second} // a tenth of the changes, half of the moves
	switch {
	case os.Getenv("BTF_SOAK") != "":
		seeds, d = 50, disorder{perSecond: 167, move: 4 * time.Second}
	case race.Enabled:
		d.perSecond = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d.seed = uint64(seed)
			synctest.Test(t, func(t *testing.T) { newChaos(t, d).run() })
		})
	}
}

// chaos is a table whose changes are read by processes that do not live long.
type chaos struct {
	*rig
	disorder
	random    *locked
	sent      map[string][]int64 // by row
	moves     int                // of tablets
	processes sync.WaitGroup

	counts  sync.Mutex
	live    map[*invocation]bool
	kills   int
	allowed int // repeats
}

func newChaos(t *testing.T, d disorder) *chaos {
	r := newRig(t, "window: 20s, maxStreams: 1, "+toLog, "k10", "k20", "k30")
	return &chaos{rig: r, disorder: d, random: &locked{r: rand.New(rand.NewPCG(d.seed, 2))}, sent: map[string][]int64{}, live: map[*invocation]bool{}}
}

func (c *chaos) run() {
	c.tick()
	c.refuse = c.awayAtTimes
	if c.restore > 0 {
		c.processes.Go(c.restoreLater)
	}
	for began := time.Now(); time.Since(began) < 20*time.Minute; time.Sleep(time.Second) {
		c.second(time.Since(began))
	}
	c.processes.Wait()
	c.rest()
}

// second is what happens in one.
func (c *chaos) second(since time.Duration) {
	if since%(10*time.Second) == 0 {
		c.start(nil)
	}
	for range c.perSecond {
		row := fmt.Sprintf("k%02d", c.random.upTo(40))
		n := int64(len(c.sent[row]) + 1)
		c.sent[row] = append(c.sent[row], n)
		c.set(row, n)
	}
	if since%c.move == 0 {
		c.moveTablets()
	}
	if since%(30*time.Second) == 0 {
		c.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Cut: true, CutAfter: c.random.upTo(20), Count: 1})
	}
	for _, data := range c.take() {
		c.start(data)
		if c.random.oneIn(10) {
			c.start(data)
		}
	}
}

// moveTablets splits, merges, shifts or moves tablets, whichever is possible at a key.
func (c *chaos) moveTablets() {
	key := func() []byte { return fmt.Appendf(nil, "k%02d", 1+c.random.upTo(39)) }
	at := key()
	err := c.emulator.SplitTablet(tableName, at)
	switch {
	case err == nil:
	case c.random.oneIn(3):
		for err = c.emulator.ShiftTablets(tableName, at, key()); err != nil; err = c.emulator.MoveTablet(tableName, at) {
			continue
		}
	default:
		err = c.emulator.MergeTablets(tableName, at)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.moves++
}

// awayAtTimes is a sink that takes only some of its records now and then.
func (c *chaos) awayAtTimes(records []relay.Record) []error {
	if !c.random.oneIn(40) {
		return nil
	}
	errs := make([]error, len(records))
	for i := c.random.upTo(len(records)); i < len(records); i++ {
		errs[i] = status.Error(codes.Unavailable, "the sink is away")
	}
	return errs
}

// invocation is a process that serves one request. It holds one partition at a time.
type invocation struct {
	*chaos
	mu   sync.Mutex
	sent []time.Time // when each of its records was since its last commit
	died time.Time   // or was paused first; zero: it was not
	dead bool
}

// settled is the longest time that a commit which is due may take, with lost calls.
const settled = time.Second

// start serves a tick, or a task if there is one, in a process of its own.
func (c *chaos) start(data []byte) {
	c.processes.Go(func() {
		p := &invocation{chaos: c}
		c.lives(p, true)
		defer c.lives(p, false)
		ctx, die := context.WithCancel(c.t.Context())
		defer die()
		if c.random.oneIn(20) { // it dies in the middle of whatever it does
			time.AfterFunc(time.Duration(c.random.upTo(20_000))*time.Millisecond, func() {
				p.stops(true)
				die()
			})
		}
		cfg := c.cfg
		cfg.Ledger = c.ledger(&storetest.Faulty{Store: noting{c.store, p}, Next: func(bool) storetest.Fault { return p.next(die) }})
		cfg.Sink = func(context.Context, *pipeline.Change) (relay.Sink, error) { return p, nil }
		if data == nil {
			c.serve(ctx, cfg, "/", nil)
		} else {
			c.deliver(ctx, cfg, data)
		}
		p.explain()
	})
}

func (c *chaos) lives(p *invocation, live bool) {
	c.counts.Lock()
	defer c.counts.Unlock()
	if live {
		c.live[p] = true
	} else {
		delete(c.live, p)
	}
}

// noting is the store of a process, which is told of its commits.
type noting struct {
	ledger.Store
	process *invocation
}

// Commit implements ledger.Store.
func (n noting) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	versions, err := n.Store.Commit(ctx, writes)
	n.process.mu.Lock()
	defer n.process.mu.Unlock()
	if err == nil && n.process.died.IsZero() {
		n.process.sent = nil
	}
	return versions, err
}

// stops notes when the process was first stopped, for a while or for good, and that it has
// committed all in time until then.
func (p *invocation) stops(dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = p.dead || dead
	if !p.died.IsZero() {
		return
	}
	p.died = time.Now()
	if len(p.sent) > 0 && p.died.Sub(p.sent[0]) > changes.CommitEvery+settled {
		p.t.Errorf("%d records, sent up to %s ago, are not committed", len(p.sent), p.died.Sub(p.sent[0]))
	}
}

func (p *invocation) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// next is what befalls a call of the ledger.
func (p *invocation) next(die func()) storetest.Fault {
	switch {
	case p.isDead():
		return storetest.FaultCrash
	case p.random.oneIn(500): // a pause
		p.stops(false)
		time.Sleep(time.Duration(p.random.upTo(150)) * time.Second)
		return storetest.FaultNone
	case !p.random.oneIn(25):
		return storetest.FaultNone
	}
	f := storetest.Fault(1 + p.random.upTo(5))
	if f == storetest.FaultCrash || f == storetest.FaultCrashAfter {
		p.stops(true)
		time.AfterFunc(time.Millisecond, die)
	}
	return f
}

// Send implements relay.Sink.
func (p *invocation) Send(ctx context.Context, records []relay.Record) []error {
	if p.isDead() {
		errs := make([]error, len(records))
		for i := range errs {
			errs[i] = storetest.ErrCrash
		}
		return errs
	}
	p.mu.Lock()
	for range records {
		p.sent = append(p.sent, time.Now())
	}
	p.mu.Unlock()
	return p.rig.Send(ctx, records)
}

// explain counts what the end of the process may have others send once more: what it has
// sent since its last commit.
func (p *invocation) explain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.died.IsZero() {
		return
	}
	p.counts.Lock()
	defer p.counts.Unlock()
	p.kills++
	p.allowed += len(p.sent)
}

// rest lets everything come to rest, and compares.
func (c *chaos) rest() {
	c.refuse = nil
	c.emulator.ClearFaults()
	for range 60 {
		c.round()
	}
	if err := c.held(); err != nil {
		c.t.Error(err)
	}
	got, arrived, sent := c.values(), 0, 0
	for row, want := range c.sent {
		arrived, sent = arrived+len(got[row]), sent+len(want)
		if !slices.Equal(got[row], want) {
			c.t.Errorf("of row %s came %v, want 1 to %d in order", row, got[row], len(want))
		}
	}
	repeats := len(c.records) - arrived
	c.t.Logf("%d changes, %d moves, %d processes killed or paused, %d repeats, %d were allowed, %v",
		sent, c.moves, c.kills, repeats, c.allowed, kinds(c.outcomes()))
	if repeats > c.allowed {
		c.t.Errorf("%d repeats, %d kills explain %d", repeats, c.kills, c.allowed)
	}
	if strings.Contains(c.log.String(), "had lost their place") {
		c.t.Error("a key without a token was read again from a time: it had lost its place")
	}
}

// locked is a source of chance for several goroutines.
type locked struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (l *locked) upTo(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}

func (l *locked) oneIn(n int) bool { return l.upTo(n) == 0 }

// kinds counts words.
func kinds(text string) map[string]int {
	out := map[string]int{}
	for _, w := range strings.Fields(text) {
		out[w]++
	}
	return out
}
