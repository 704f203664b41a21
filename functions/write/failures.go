package write

import (
	"context"
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/settle"
)

// failure is a record or a row that can never be written.
type failure struct {
	letter    deadletter.Letter
	reason    error // quotes nothing of the record
	unmatched bool  // onUnmatched decides, not onFailure
	lost      bool  // there is no content to keep: it can only be refused or dropped
}

func (f *function) policy(x *failure) pipeline.Policy {
	if x.unmatched {
		return f.cfg.Pipeline.Write.OnUnmatched
	}
	return f.cfg.Pipeline.Write.OnFailure
}

// At most maxLetters dead letters with maxLetterBytes of data are kept of one message. If
// there would be more, the whole message becomes one letter. The records of a message are
// together as large as the message; the entries that they become can be far larger.
const (
	maxLetters     = 1000
	maxLetterBytes = 16 << 20
)

// post collects the dead letters of one delivery. None is published before all are known.
type post struct {
	letters []deadletter.Letter
	count   int  // records and entries in letters, or in the one letter instead
	kept    int  // letters that are published
	bytes   int  // of data of all letters
	tooMany bool // the message as a whole is the letter
	sent    bool // that letter is kept
}

func (p *post) add(l deadletter.Letter) {
	p.count++
	p.bytes += len(l.Data)
	if p.tooMany = p.tooMany || p.kept+len(p.letters) == maxLetters || p.bytes > maxLetterBytes; p.tooMany {
		p.letters = nil
		return
	}
	p.letters = append(p.letters, l)
}

// giveUp hands failures to their policies: those that refuse the delivery are noted in d,
// and so are dead letters.
func (f *function) giveUp(ctx context.Context, d *delivery, failures []failure) {
	s := &d.summary
	for i := range failures {
		x := &failures[i]
		policy := f.policy(x)
		if policy == pipeline.PolicySkip {
			s.Skipped++
			continue
		}
		s.Failed++
		f.note(ctx, d, policy, x)
		switch {
		case policy == pipeline.PolicyFail:
			d.refused.add(x.reason)
		case policy == pipeline.PolicyDeadLetter && x.lost:
			d.refused.add(fmt.Errorf("cannot be kept as a dead letter: %w", x.reason))
		case policy == pipeline.PolicyDeadLetter:
			if !d.post.tooMany { // else the message is the letter, and is checked as one
				if err := x.letter.Check(); err != nil {
					d.refused.add(fmt.Errorf("%w: it cannot be kept as a dead letter, for %w", x.reason, err))
					continue
				}
			}
			d.post.add(x.letter)
		}
	}
}

// keepLetters publishes the dead letters that are noted in d, unless the delivery is
// refused and comes back whole. An error means that one could not be kept.
func (f *function) keepLetters(ctx context.Context, d *delivery) error {
	p, s := &d.post, &d.summary
	letters, count := p.letters, p.count
	p.letters, p.count = nil, 0
	if count == 0 || d.refused.count > 0 {
		return nil
	}
	if p.tooMany && !p.sent {
		whole := f.wholeLetter(d, count)
		if err := whole.Check(); err != nil {
			d.refused.add(fmt.Errorf("more than %d dead letters, or %d MiB of them, of one message, which cannot be kept as one: %w", maxLetters, maxLetterBytes>>20, err))
			return nil
		}
		letters, p.sent = []deadletter.Letter{whole}, true
	}
	if len(letters) > 0 {
		start := f.cfg.Now()
		err := f.cfg.DeadLetters.Put(ctx, letters)
		s.LetterWait += f.cfg.Now().Sub(start)
		if err != nil {
			return fmt.Errorf("keeping %d dead letters: %w", len(letters), err)
		}
		p.kept += len(letters)
	}
	s.DeadLettered += count
	return nil
}

// wholeLetter keeps the message, to be mapped again by every mapping. It stands for count
// records and entries.
func (f *function) wholeLetter(d *delivery, count int) deadletter.Letter {
	l := f.bareLetter(d, fmt.Errorf("%d records or entries of the message can never be written; over %d, or over %d MiB, are kept as one letter", count, maxLetters, maxLetterBytes>>20))
	l.Kind, l.Data = deadletter.KindRecord, d.Message.Data
	l.Origin = &deadletter.Origin{
		Attributes: d.Message.Attributes, OrderingKey: d.Message.OrderingKey, Subscription: d.Message.Subscription, Whole: true,
	}
	return l
}

// unwritable lists what the mapping refuses and what no mapping takes.
func (f *function) unwritable(d *delivery, result *mapping.Result) []failure {
	var out []failure
	for _, r := range result.Rejected {
		if t := f.tableOf(r.Mapping); t != nil {
			d.summary.table(t.Name).Failed++
		}
		out = append(out, failure{letter: f.letter(d, r.Record, r.Mapping, r), reason: r})
	}
	for _, i := range result.Unmatched {
		out = append(out, failure{letter: f.letter(d, i, "", mapping.ErrUnmatched), reason: mapping.ErrUnmatched, unmatched: true})
	}
	return out
}

// tableOf is the table that a mapping writes to, nil for no mapping.
func (f *function) tableOf(mapping string) *pipeline.Table {
	for _, m := range f.cfg.Pipeline.Write.Mappings {
		if m.Name == mapping {
			return m.Table
		}
	}
	return nil
}

// letter keeps the i-th record of the message as it was received, where it is still at
// hand, with all that a mapping may read of the message.
func (f *function) letter(d *delivery, i int, mapping string, reason error) deadletter.Letter {
	l := f.bareLetter(d, reason)
	l.Mapping = mapping
	l.Origin = &deadletter.Origin{
		Attributes: d.Message.Attributes, OrderingKey: d.Message.OrderingKey, Subscription: d.Message.Subscription, Place: i,
	}
	if r := d.record(i); r != nil {
		r.Keep(&l)
	}
	return l
}

// bareLetter names the message of something that is given up, the reason and the time.
func (f *function) bareLetter(d *delivery, reason error) deadletter.Letter {
	return deadletter.Letter{Error: reason.Error(), Time: f.cfg.Now(), MessageID: d.Message.ID, PublishTime: d.Message.PublishTime}
}

// malformed keeps the body of a request that is no message, for somebody to look at.
func (f *function) malformed(d *delivery) failure {
	l := f.bareLetter(d, d.Malformed)
	l.Kind, l.Data = deadletter.KindRequest, d.Message.Data
	return failure{letter: l, reason: d.Malformed, lost: d.Message.Data == nil}
}

// refusedRow keeps an entry that the service refuses for good, so that it can be
// applied as it was meant; one that is too large for a message, as the record it came
// from. The service's own words go into the letter, not into the log.
func (f *function) refusedRow(d *delivery, r settle.Rejected) failure {
	part := r.Row.Parts[0]
	d.summary.table(r.Row.Schema.Name).Failed++
	letter := f.letter(d, part.Record, part.Mapping.Name, r.Reason)
	if r.Reason.Detail != "" {
		letter.Error += ": " + r.Reason.Detail
	}
	kept := letter.SetRow(r.Row.Table, r.Row.Entry, r.Row.Unless) || d.record(part.Record) != nil
	return failure{letter: letter, lost: !kept, reason: &mapping.Rejection{Record: part.Record, Mapping: part.Mapping.Name, Err: r.Reason}}
}
