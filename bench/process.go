package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// deployed is what Terraform sets for 256 MiB.
const deployed = "GOMEMLIMIT=192MiB"

const pipelineFile = `
version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64, coupon: string}}
write:
  format: %s
  onFailure: drop
  mappings:
    - name: order
      table: orders
      rowKey: key("order", event.tenant, event.id)
      timestamp: timestamp(event.updated_at)
      mutations:
        - set:
            cf: {status: event.status, total: event.total_cents, coupon: event.?coupon.orValue("none")}
`

// process is a function at work.
type process struct {
	cmd    *exec.Cmd
	url    string
	said   bytes.Buffer
	exited chan struct{}
}

func (b *bench) write(format string) func(context.Context) (*process, error) {
	return func(ctx context.Context) (*process, error) {
		return start(ctx, b.function, "PIPELINE="+fmt.Sprintf(pipelineFile, format), "FUNCTION_TARGET=write",
			"BIGTABLE_EMULATOR_HOST="+b.server.addr, deployed)
	}
}

func (b *bench) baseline(kind string) func(context.Context) (*process, error) {
	return func(ctx context.Context) (*process, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return start(ctx, self, childVariable+"="+kind, "BIGTABLE_EMULATOR_HOST="+b.server.addr, deployed)
	}
}

// start runs a program and returns when it listens.
func start(ctx context.Context, program string, env ...string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, program), url: "http://127.0.0.1:" + port + "/", exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), append(env, "PORT="+port, "K_SERVICE=bench")...)
	p.cmd.Stderr = &p.said // what goes wrong; the log on stdout is part of the work, and read by nobody
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { defer close(p.exited); p.cmd.Wait() }()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%s ended: %s", program, p.said.String())
		case <-time.After(time.Millisecond):
		}
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			return p, nil
		}
	}
	p.stop()
	return nil, errors.New("the function does not listen")
}

func (p *process) stop() {
	// Baselines do not end on SIGTERM as fast as they should.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(2 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// cpuTime reads user and system time of a process, in ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// peakMiB reads the largest resident set a process ever had.
func peakMiB(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			return kib >> 10, err
		}
	}
	return 0, errors.New("no VmHWM")
}

func contains(s, part string) bool { return strings.Contains(s, part) }
