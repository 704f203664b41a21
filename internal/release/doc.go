// Package release guarantees what can be told about releases and deployments without the services
// that make them: its tests read Cloud Build's and GoReleaser's files strictly, run the scripts of
// the builds with stand-ins for the programs that they call, and check that the module can be
// installed by version.
package release
