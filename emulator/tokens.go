package emulator

import (
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

// tokenLife is how long an idempotency token protects a row from being
// written twice (data.proto, Idempotency): 15 minutes.
const tokenLife = 15 * time.Minute

// tokenWindow remembers the idempotency tokens of applied mutations, by row.
type tokenWindow struct {
	seen  map[string]int64 // row key and token → microseconds
	queue []tokenUse       // in the order of use
}

type tokenUse struct {
	id string
	at int64 // microseconds
}

// tokenID joins key and token: keys are at most 4 KiB, so two bytes of length
// keep (key, token) pairs apart.
func tokenID(key string, token []byte) string {
	return string([]byte{byte(len(key) >> 8), byte(len(key))}) + key + string(token)
}

func (w *tokenWindow) used(id string, now int64) bool {
	at, ok := w.seen[id]
	return ok && now-at < tokenLife.Microseconds()
}

func (w *tokenWindow) use(id string, now int64) {
	n := 0
	for n < len(w.queue) && now-w.queue[n].at >= tokenLife.Microseconds() {
		if w.seen[w.queue[n].id] == w.queue[n].at {
			delete(w.seen, w.queue[n].id)
		}
		n++
	}
	w.queue = w.queue[n:]
	if w.seen == nil {
		w.seen = map[string]int64{}
	}
	w.seen[id] = now
	w.queue = append(w.queue, tokenUse{id, now})
}

// protects reports whether a token stands for these mutations: it does for
// those that change an aggregate family, and does nothing otherwise.
func protects(i *bigtablepb.Idempotency, muts []*bigtablepb.Mutation) bool {
	if len(i.GetToken()) == 0 {
		return false
	}
	for _, m := range muts {
		if m.GetAddToCell() != nil || m.GetMergeToCell() != nil {
			return true
		}
	}
	return false
}

// expired reports whether a first attempt lies so far back that its token may
// have been forgotten.
func expired(i *bigtablepb.Idempotency, now int64) bool {
	start := i.GetStartTime()
	return start != nil && (start.Seconds != 0 || start.Nanos != 0) &&
		now-start.AsTime().UnixMicro() >= tokenLife.Microseconds()
}
