// Package version says which version of this repository a program was built from. It guarantees to
// tell a release from anything else: a version comes from the linker (an image, a downloaded
// release) or from the module (go install …@version), and without either the commit is named.
package version

import (
	"cmp"
	"fmt"
	"runtime/debug"
)

// stamped is set by the linker, with -X. Dockerfile and .goreleaser.yaml do so.
var stamped string

// Current describes the running program.
func Current() string { return describe(stamped, debug.ReadBuildInfo) }

// describe describes a program by what the linker has stamped and by how it was built.
func describe(stamped string, read func() (*debug.BuildInfo, bool)) string {
	info, known := read()
	if !known {
		return cmp.Or(stamped, "of unknown origin")
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	v := cmp.Or(stamped, info.Main.Version)
	if v == "" || v == "(devel)" {
		v = "(devel)"
		if commit := settings["vcs.revision"]; commit != "" {
			v = "commit " + commit
			if settings["vcs.modified"] == "true" {
				v += ", modified"
			}
		}
	}
	return fmt.Sprintf("%s (%s %s/%s)", v, info.GoVersion, settings["GOOS"], settings["GOARCH"])
}
