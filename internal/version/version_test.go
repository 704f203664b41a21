package version

import (
	"runtime/debug"
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
		if got := describe("", func() (*debug.BuildInfo, bool) { return info, true }); got != c.want {
			t.Errorf("of %q: %q, want %q", c.version, got, c.want)
		}
	}
	if got := describe("", func() (*debug.BuildInfo, bool) { return nil, false }); got != "of unknown origin" {
		t.Errorf("of nothing: %q", got)
	}
	info := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "(devel)"}, Settings: settings("true")}
	if got, want := describe("v2.0.0", func() (*debug.BuildInfo, bool) { return info, true }), "v2.0.0 (go1.26 linux/arm64)"; got != want {
		t.Errorf("of a release: %q, want %q", got, want)
	}
	if got := describe("v2.0.0", func() (*debug.BuildInfo, bool) { return nil, false }); got != "v2.0.0" {
		t.Errorf("of a release without build information: %q", got)
	}
}
