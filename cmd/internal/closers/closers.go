// Package closers guarantees that what was opened is closed in the opposite order, each part once,
// whatever errors come of it.
package closers

import "errors"

// Stack is what is to be closed. The zero Stack is empty.
type Stack struct{ closers []func() error }

// Add puts one part onto the stack.
func (s *Stack) Add(closer func() error) { s.closers = append(s.closers, closer) }

// Close closes all parts, the newest first, and removes them from the stack. Its error is that of
// each part that failed.
func (s *Stack) Close() error {
	var errs []error
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		closer := s.closers[last]
		s.closers = s.closers[:last]
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}
