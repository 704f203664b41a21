//go:build !unix

package googleemu

import "errors"

// canKillTree is false: process groups are a Unix notion, and an emulator that cannot be stopped is not started.
const canKillTree = false

type tree struct{ done chan struct{} }

func startTree([]string, []string, string) (*tree, error) { return nil, errors.ErrUnsupported }

func (*tree) stop() {}

func (*tree) output() string { return "" }
