package ledger

import (
	"fmt"
	"strconv"
	"strings"
)

// Holder is the identity of a process that takes leases; empty: nobody. The ledger only compares
// it. Process.Holder makes one.
type Holder string

// Process is what the identity of a holder says of it.
type Process struct {
	// Revision is that of a deployed function; empty on a laptop.
	Revision string
	Host     string
	PID      int
	// System is within which a PID is one process's at a time, and Started when the process began,
	// so that one that has the PID later differs. Both are empty if the system does not tell.
	// Neither has a dash or a slash.
	System, Started string
}

// Holder returns the identity of the process.
func (p Process) Holder() Holder {
	name := fmt.Sprintf("%s/%d", p.Host, p.PID)
	if p.Revision != "" {
		name = p.Revision + "/" + name
	}
	if p.System != "" {
		name += "/" + p.System + "-" + p.Started
	}
	return Holder(name)
}

// Process returns the process of a holder whose identity has a System, and whether it has one.
func (h Holder) Process() (p Process, ok bool) {
	parts := strings.Split(string(h), "/")
	if len(parts) != 3 {
		return Process{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	system, started, found := strings.Cut(parts[2], "-")
	if err != nil || pid <= 0 || !found {
		return Process{}, false
	}
	return Process{Host: parts[0], PID: pid, System: system, Started: started}, true
}

// String is the identity as people read it: host and PID, and the revision of a function.
func (h Holder) String() string {
	if p, ok := h.Process(); ok {
		return fmt.Sprintf("%s/%d", p.Host, p.PID)
	}
	return string(h)
}
