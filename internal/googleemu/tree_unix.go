//go:build unix

package googleemu

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

const canKillTree = true

// tether runs "$@" as a process group that a watcher kills when standard input ends: at stop, or because the test's process died in whatever way.
// gcloud is three processes deep and forwards no signal, so killing it alone would leave the emulator behind.
const tether = `exec 3<&0; (cat <&3; kill -KILL 0) >/dev/null 2>&1 & exec "$@" 3<&- </dev/null`

// tree is a command with all of its descendants.
type tree struct {
	cmd     *exec.Cmd
	stdin   io.Closer // what tether watches; Wait closes it, so the command's end is the end of its descendants too
	logPath string
	done    chan struct{} // closed when the command has ended
	once    sync.Once
}

// startTree runs args with env, its output going to logPath. The caller must call stop.
func startTree(args, env []string, logPath string) (*tree, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the command has its own descriptor
	cmd := exec.Command("sh", append([]string{"-c", tether, "sh"}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("running %s: %w", args[0], err)
	}
	t := &tree{cmd: cmd, stdin: stdin, logPath: logPath, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.cmd.Wait() // how it ended does not matter: it is killed, or its output says why it ended
	}()
	return t, nil
}

// stop kills every process of the tree and waits until the command is gone; its descendants, which are not ours to wait for, have the same signal
// pending. It may be called again.
func (t *tree) stop() {
	t.once.Do(func() {
		syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL) // ESRCH: all gone already
		<-t.done
	})
}

// output is what the tree has printed so far, without blank space around it.
func (t *tree) output() string {
	b, err := os.ReadFile(t.logPath)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}
