package writer

import "google.golang.org/grpc/codes"

// Stats is what a Writer has done and holds. Counters only grow.
type Stats struct {
	RecordsSend   int64 // entries accepted, once each however often they were sent
	BytesSend     int64 // their serialized bytes
	Applied       int64 // entries the service took
	Rejected      int64 // verdicts returned
	Calls         int64 // requests for data
	Isolating     int64 // of these, to tell entries apart that were refused together
	TablesCreated int64
	FamiliesAdded int64
	// Errors counts failed outcomes by status, one for each entry and attempt.
	// Refusals of several entries together count only once they are confirmed.
	Errors [codes.Unauthenticated + 1]int64

	InFlightEntries int   // accepted, without an outcome
	InFlightBytes   int64 // their serialized bytes
	Parked          int   // of these, waiting for a repair
	Waiting         int   // Apply calls that wait for room
	Tables          int   // live batchers
	Clients         int   // open connections to instances
	BreakerOpen     bool
}

func (s *Stats) countError(code codes.Code) {
	if int(code) < len(s.Errors) {
		s.Errors[code]++
	} else {
		s.Errors[codes.Unknown]++
	}
}

// Stats returns a snapshot.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.InFlightEntries, s.InFlightBytes = w.held.entries, w.held.bytes
	s.Waiting = w.waiting.list.Len() + w.clients.waiting.list.Len()
	for _, t := range w.tables {
		s.Parked += len(t.parked)
		s.Waiting += t.waiting.list.Len()
	}
	s.Tables, s.Clients, s.BreakerOpen = len(w.tables), len(w.clients.open), w.breaker.open
	return s
}
