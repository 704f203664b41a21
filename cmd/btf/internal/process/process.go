// Package process guarantees that a process of this machine counts as dead only if that is certain,
// so that what it has leased may be taken from it.
package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Self names this process in leases, as HOST/PID for people. Where the system can tell processes
// apart for certain, the name goes on with what Died needs for that.
func Self() string { return Of(os.Getpid()) }

// Of names the process with a PID as Self does.
func Of(pid int) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := fmt.Sprintf("%s/%d", host, pid)
	if where := pidSpace(); where != "" {
		if p, err := processOf(pid); err == nil {
			name += "/" + where + "-" + p.started
		}
	}
	return name
}

// process is what is known of one, by its PID.
type process struct {
	started string // when, so that one that has the PID later differs
	ended   bool   // only its parent has not asked for it yet
}

// Died reports whether the process that a lease names is known to have ended: it was one
// of this system, and its PID is nobody's, or another's. What is not certain is false.
func Died(holder string) bool {
	_, pid, identity := splitHolder(holder)
	where, started, ok := strings.Cut(identity, "-")
	if !ok || where != pidSpace() {
		return false
	}
	if isNobodys(pid) {
		return true
	}
	p, err := processOf(pid)
	return err == nil && (p.ended || p.started != started)
}

// Alive reports whether the process that a lease names is known to run: it is one of
// this system.
func Alive(holder string) bool {
	_, _, identity := splitHolder(holder)
	where, _, ok := strings.Cut(identity, "-")
	return ok && where == pidSpace() && !Died(holder)
}

// Short is a holder's name without what only Died reads.
func Short(holder string) string {
	if host, pid, identity := splitHolder(holder); identity != "" {
		return fmt.Sprintf("%s/%d", host, pid)
	}
	return holder
}

// splitHolder takes apart a name that this command has given; of any other the identity
// is empty.
func splitHolder(holder string) (host string, pid int, identity string) {
	parts := strings.Split(holder, "/")
	if len(parts) != 3 {
		return "", 0, ""
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid <= 0 || !strings.Contains(parts[2], "-") {
		return "", 0, ""
	}
	return parts[0], pid, parts[2]
}

// IsCertain reports whether this system can tell for certain that a process has ended.
func IsCertain() bool { return pidSpace() != "" }
