//go:build race

// Package race says whether the program is built with the race detector. A test under it
// works on less, since all work takes about ten times as long, and does not measure memory,
// of which the detector takes several times as much.
package race

// Enabled is whether the race detector is built in.
const Enabled = true
