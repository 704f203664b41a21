// Package realgcp tries the functions on Google Cloud, for somebody with a project. It guarantees to
// delete what it creates there, and what runs of it have left that were interrupted more than two
// hours ago. Its tests are built with the tag realgcp alone:
//
//	gcloud auth application-default login
//	BTF_REAL_PROJECT=my-project go test -tags realgcp -v -timeout 60m ./realgcp
//
// They create an instance of Bigtable with one node and some topics, which costs about a dollar, write,
// scan and tail with the functions as processes of their own, and print each fact that the documents
// call unverified beside what the service has answered. A fact that is otherwise is no failure.
//
//   - BTF_REAL_ZONE is the zone of the instance; us-central1-b if it is unset.
//   - BTF_REAL_DATABASE is a Firestore database for the ledger. If it is unset, a file is the ledger.
//   - BTF_REAL_PROJECT=emulators tries the tests themselves, against emulators. CI does so.
package realgcp

import (
	"strconv"
	"strings"
	"time"
)

const (
	prefix = "btf-real-"
	digits = 5 // of the minutes since 1970, to the base 36, until 2084
	// keep is how long nothing of another run is deleted: it may still be running.
	keep = 2 * time.Hour
)

// ID is what a run that begins now calls its instance and its pipeline: 16 characters, and a
// pipeline's name has at most 17. random tells runs of the same minute apart: two characters.
func ID(now time.Time, random string) string {
	return prefix + strconv.FormatInt(now.Unix()/60, 36) + random
}

// IsStale reports whether an id is one of ID, made so long ago that its run has ended.
func IsStale(id string, now time.Time) bool {
	rest, ours := strings.CutPrefix(id, prefix)
	if !ours || len(rest) != digits+2 {
		return false
	}
	minutes, err := strconv.ParseUint(rest[:digits], 36, 32)
	return err == nil && now.Sub(time.Unix(int64(minutes)*60, 0)) > keep
}
