// Package process guarantees that a process of this machine counts as dead only if that is certain,
// so that what it has leased may be taken from it.
package process

import (
	"os"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Self is this process in leases. Where the system can tell processes apart for certain, its
// identity has what Died needs for that.
func Self() ledger.Holder { return Of(os.Getpid()) }

// Of is the process with a PID in leases, as Self is this one.
func Of(pid int) ledger.Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	named := ledger.Process{Host: host, PID: pid}
	if where := pidSpace(); where != "" {
		if p, err := processOf(pid); err == nil {
			named.System, named.Started = where, p.started
		}
	}
	return named.Holder()
}

// process is what is known of one, by its PID.
type process struct {
	started string // when, so that one that has the PID later differs
	ended   bool   // only its parent has not asked for it yet
}

// Died reports whether the process that a lease names is known to have ended: it was one
// of this system, and its PID is nobody's, or another's. If that is not certain, it is false.
func Died(holder ledger.Holder) bool {
	named, ok := holder.Process()
	if !ok || named.System != pidSpace() {
		return false
	}
	if isNobodys(named.PID) {
		return true
	}
	p, err := processOf(named.PID)
	return err == nil && (p.ended || p.started != named.Started)
}

// Alive reports whether the process that a lease names is known to run: it is one of
// this system.
func Alive(holder ledger.Holder) bool {
	named, ok := holder.Process()
	return ok && named.System == pidSpace() && !Died(holder)
}

// IsCertain reports whether this system can tell for certain that a process has ended.
func IsCertain() bool { return pidSpace() != "" }
