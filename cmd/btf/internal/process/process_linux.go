package process

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// pidSpace names that in which a PID is one process's at a time: this boot of this
// kernel, and the PID namespace. It is empty where /proc does not tell, or is another
// namespace's. The time namespace is in it because a start is counted in it.
func pidSpace() string {
	self, err := os.Readlink("/proc/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(bytes.TrimSpace(boot)) == 0 {
		return ""
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	times, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // kernels before 5.6 have none
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", bytes.TrimSpace(boot), pids, times))
	return hex.EncodeToString(sum[:6])
}

// processOf reads /proc/PID/stat (proc_pid_stat(5)): after the name in parentheses come
// the state, and as the twentieth from there the start, in clock ticks since the boot.
func processOf(pid int) (process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	state := string(fields[0])
	return process{started: string(fields[19]), ended: state == "Z" || state == "X"}, nil
}

// isNobodys reports whether no process has the PID. /proc may hide those of others.
func isNobodys(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
