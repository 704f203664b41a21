package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// Close replaces the partition, which has closed with the given successors, in one
// transaction: it is deleted, and each of its keys is held by a successor or has its
// token in a partition that waits for the tokens of other parents. at is the last
// position that is acknowledged, nil where none was since the last commit; all that the
// stream had before its close must be acknowledged.
//
// It returns the partitions that are opened. Where a reply was lost, some may be missing
// among them.
func (p *PartitionLease) Close(ctx context.Context, successors []changestream.Successor, at *changestream.Position) ([]PartitionID, error) {
	var opened []PartitionID
	err := p.doc.Delete(ctx, func(v *partitionDoc) ([]Write, error) {
		if err := exact(v.Range.keys(), successors); err != nil {
			return nil, err
		}
		p.move(v, at)
		c := &closing{ctx: ctx, ledger: p.doc.ledger, stream: p.id.Stream, partition: v, self: p.id.Incarnation, names: p.opening, now: p.Now()}
		var err error
		opened, err = c.writes(successors)
		return c.out, err
	})
	if err := p.settle("closing", err); err != nil {
		return nil, err
	}
	return opened, nil
}

// exact checks that the tokens hold the keys of the partition, each once.
func exact(partition rowrange.Range, successors []changestream.Successor) error {
	tokens := make([]changestream.Token, len(successors))
	for i, s := range successors {
		tokens[i] = s.Token
	}
	if !changestream.HoldOnce(partition, tokens) {
		return errors.New("the successors do not hold each key of the partition once")
	}
	return nil
}

// closing decides what is written when a partition closes.
type closing struct {
	ctx       context.Context
	ledger    *Ledger
	stream    StreamID
	partition *partitionDoc
	self      string            // its incarnation
	names     map[string]string // incarnations that were chosen, also by an earlier attempt
	now       time.Time
	pending   map[rowrange.Range]Doc
	others    []Doc // partitions that overlap a target
	held      []rowrange.Range
	unheld    *Doc // nil: only keys of the partition change hands
	out       []Write
}

func (c *closing) writes(successors []changestream.Successor) ([]PartitionID, error) {
	if err := c.read(successors); err != nil {
		return nil, err
	}
	waiting := make(map[rowrange.Range]*changestream.Pending)
	for target, doc := range c.pending {
		if doc.Body != nil {
			p, err := decodePending(doc)
			if err != nil {
				return nil, err
			}
			waiting[target] = p
		}
	}
	h := changestream.HandOver(successors, c.partition.LowWatermark, c.now,
		func(target rowrange.Range) *changestream.Pending { return waiting[target] }, c.held)
	opened, err := c.open(h.Open)
	if err != nil {
		return nil, err
	}
	for _, w := range h.Wait {
		if err := c.put(c.pending[w.Target], w); err != nil {
			return nil, err
		}
	}
	for _, target := range h.Forget {
		if doc := c.pending[target]; doc.Body != nil {
			c.out = append(c.out, Write{Op: OpDelete, Key: doc.Key, Version: doc.Version})
		}
	}
	c.check(h)
	return opened, nil
}

// read reads the documents that the decision rests on, in an order that matters: the
// pending partitions, then unheldDoc, then the other partitions that overlap a target. No
// other partition overlaps a target that lies inside this one.
func (c *closing) read(successors []changestream.Successor) error {
	var keys []Key
	var targets []rowrange.Range
	beyond := false
	self := c.partition.Range.keys()
	c.pending = make(map[rowrange.Range]Doc)
	for _, s := range successors {
		if _, known := c.pending[s.Target]; known {
			continue
		}
		c.pending[s.Target] = Doc{}
		targets = append(targets, s.Target)
		keys = append(keys, c.ledger.pendingKey(c.stream, s.Target))
		beyond = beyond || !rowrange.Covers([]rowrange.Range{self}, s.Target)
	}
	docs, err := c.ledger.read(c.ctx, keys...)
	if err != nil {
		return err
	}
	for i, doc := range docs {
		c.pending[targets[i]] = doc
	}
	if !beyond {
		return nil
	}
	unheld, err := c.ledger.get(c.ctx, c.ledger.unheldKey(c.stream))
	if err != nil {
		return err
	}
	c.unheld = &unheld
	return c.ledger.list(c.ctx, func(doc Doc) error {
		v, err := decodeDoc[partitionDoc](doc)
		if err != nil || doc.Key.ID == c.self {
			return err
		}
		for _, target := range targets {
			if _, some := rowrange.Intersect(target, v.Range.keys()); some {
				c.others, c.held = append(c.others, doc), append(c.held, v.Range.keys())
				break
			}
		}
		return nil
	}, c.ledger.below(c.stream, partitionsOf))
}

// open writes the partitions that replace this one.
func (c *closing) open(openings []changestream.Opening) ([]PartitionID, error) {
	var opened []PartitionID
	taken := false
	for _, o := range openings {
		name := rangeID(o.Range)
		if c.names[name] == "" {
			c.names[name] = rand.Text()
		}
		created := PartitionID{Stream: c.stream, Incarnation: c.names[name]}
		w, err := c.ledger.put(Doc{Key: c.ledger.partitionKey(created)}, newPartitionDoc(o))
		if err != nil {
			return nil, err
		}
		c.out, opened = append(c.out, w), append(opened, created)
		taken = taken || !rowrange.Covers([]rowrange.Range{c.partition.Range.keys()}, o.Range)
	}
	if taken {
		w, err := c.ledger.takeUnheld(*c.unheld)
		if err != nil {
			return nil, err
		}
		c.out = append(c.out, w)
	}
	return opened, nil
}

// takeUnheld is the write by which any other process fails that takes keys which nobody
// held.
func (l *Ledger) takeUnheld(doc Doc) (Write, error) {
	d := &unheldDoc{}
	d.mark(rand.Text())
	return l.put(doc, d)
}

func (c *closing) put(doc Doc, p changestream.Pending) error {
	w, err := c.ledger.putPending(doc, p, rand.Text())
	if err != nil {
		return err
	}
	if len(w.Body) > MaxBodyBytes {
		return fmt.Errorf("%d tokens wait for one partition, in %d bytes: %w", len(p.Tokens), len(w.Body), ErrTooLarge)
	}
	c.out = append(c.out, w)
	return nil
}

// check makes the transaction depend on the partitions that hold a target which is
// forgotten and not opened. There are none while each key is held once.
func (c *closing) check(h changestream.Handover) {
	for _, target := range h.Forget {
		opened := false
		for _, o := range h.Open {
			opened = opened || o.Range == target
		}
		for i, doc := range c.others {
			if _, some := rowrange.Intersect(target, c.held[i]); some && !opened {
				c.out = append(c.out, Write{Op: OpCheck, Key: doc.Key, Version: doc.Version})
			}
		}
	}
}
