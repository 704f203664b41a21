package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestTheVersionIsWhatTheProgramWasBuiltFrom(t *testing.T) {
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{
			{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}, {Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.modified", Value: modified},
		}
	}
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.2.3", settings("false"), "v1.2.3 (go1.26 linux/arm64)"},
		{"(devel)", settings("false"), "commit 0123abc (go1.26 linux/arm64)"},
		{"", settings("true"), "commit 0123abc, modified (go1.26 linux/arm64)"},
		{"(devel)", settings("")[:2], "(devel) (go1.26 linux/arm64)"},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: c.version}, Settings: c.settings}
		if got := builtFrom(info, true); got != c.want {
			t.Errorf("of %q: %q, want %q", c.version, got, c.want)
		}
	}
	if got := builtFrom(nil, false); got != "of unknown origin" {
		t.Errorf("of nothing: %q", got)
	}
	if stdout, _, err := run(t, "--version"); err != nil || !strings.HasPrefix(stdout, "btf version ") || !strings.Contains(stdout, "(go") {
		t.Errorf("btf --version: %q, %v", stdout, err)
	}
}
