//go:build race

package expr

// raceFactor is by how much the race detector may slow an evaluation down.
const raceFactor = 20
