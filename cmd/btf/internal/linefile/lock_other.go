//go:build !linux && !darwin

package linefile

import "os"

// lock does nothing where the standard library has no lock for a whole file.
func lock(*os.File) error { return nil }
