package mapping

import (
	"context"

	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// Sizes of rows in memory, in bytes, rounded up, from here to the request that they are
// sent in.
const (
	sizeOfRow      = 1200
	sizeOfMutation = 320 // beside its bytes, which made.bytes counts
	sizeOfItem     = 16  // of the list that forEach gives
)

// stepMade is how many bytes Map makes before it returns.
const stepMade = 8 << 20

// checkEvery is after how many items of one record the context is looked at.
const checkEvery = 64

// charge counts the bytes by which the row has grown since it was charged last.
func (s *Session) charge(r *made) error {
	n := sizeOfMutation*(len(r.mutations)-r.paidMutations) + 2*(r.bytes-r.paidBytes)
	if r.paidMutations == 0 {
		n += sizeOfRow
	}
	r.paidMutations, r.paidBytes = len(r.mutations), r.bytes
	return s.take(int64(n))
}

// take counts n bytes more of the record at hand.
func (s *Session) take(n int64) error {
	if s.most == 0 {
		return nil
	}
	if s.size += n; s.size > s.most {
		return record.TooLarge(s.most)
	}
	s.result.Made += n
	if s.stopped = s.charged(n); s.stopped != nil {
		return s.stopped
	}
	return nil
}

// watch fails once the context has ended, which it looks at for some of the items.
func (s *Session) watch(item int) error {
	if item%checkEvery == 0 && s.ctx.Err() != nil {
		s.stopped = context.Cause(s.ctx)
	}
	return s.stopped
}
