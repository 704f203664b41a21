package ledger

import (
	"context"
	"fmt"
)

// Break ends the lease of a split that stands under fence, for anyone to take at once,
// and raises the fence: a commit under the old one fails from then on. Where the split
// is not held under that fence, or not any more, nothing changes and nothing is wrong.
//
// Call it only if the holder is known to be dead, and not to save a wait. A holder that
// does live cannot move the split any more, so nothing is missed; but until
// its deadline it goes on sending what it has read, which then reaches the sink twice.
func (l *Ledger) Break(ctx context.Context, t Task, fence int64) error {
	err := AmendDoc(ctx, l, l.splitKey(t), func(s *splitDoc) (*splitDoc, error) {
		switch {
		case s == nil:
			return nil, ErrNotFound
		case s.finished() || s.Holder == "" || s.Fence != fence:
			return nil, nil
		}
		s.bury()
		s.Fence++
		return s, nil
	})
	if err != nil {
		return fmt.Errorf("breaking the lease of %s: %w", t.describe(), err)
	}
	return nil
}
