//go:build linux || darwin

package linefile

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps every other process from locking the file until it is closed, where the
// file system can do that.
func lock(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrInUse
		case !errors.Is(err, syscall.EINTR):
			return nil
		}
	}
}
