package closers

import (
	"errors"
	"slices"
	"testing"
)

func TestAStackClosesEachPartOnceTheNewestFirst(t *testing.T) {
	var s Stack
	var closed []string
	stuck, lost := errors.New("it does not close"), errors.New("it is lost")
	s.Add(func() error { closed = append(closed, "connection"); return stuck })
	s.Add(func() error { closed = append(closed, "publisher"); return nil })
	s.Add(func() error { closed = append(closed, "file"); return lost })
	err := s.Close()
	if want := []string{"file", "publisher", "connection"}; !slices.Equal(closed, want) || !errors.Is(err, stuck) || !errors.Is(err, lost) {
		t.Errorf("closed %q, %v", closed, err)
	}
	if err := s.Close(); err != nil || len(closed) != 3 {
		t.Errorf("closed again: %q, %v", closed, err)
	}
}
