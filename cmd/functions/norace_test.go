//go:build !race

package main

// raceEnabled: memory is measured.
const raceEnabled = false
