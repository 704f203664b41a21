//go:build unix

package tailrun

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// isUnread reports whether out is a pipe whose reader is gone.
func isUnread(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	poll := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&unix.POLLERR != 0
}
