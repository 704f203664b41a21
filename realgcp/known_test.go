//go:build realgcp

package realgcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// knownFacts are the facts, by where the documents have them.
func knownFacts() []fact {
	return slices.Concat(writeFacts(), readFacts(), rareFacts(), adminFacts())
}

func writeFacts() []fact {
	one := func(profile, key string, m *bigtablepb.Mutation) func(context.Context, *facts) string {
		return func(ctx context.Context, f *facts) string { return f.one(ctx, profile, key, m) }
	}
	deletion := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: "absent"}}}
	merge := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{MergeToCell: &bigtablepb.Mutation_MergeToCell{
		FamilyName: "sums", ColumnQualifier: rawValue([]byte("n")), Timestamp: &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{}}, Input: rawValue(make([]byte, 8)),
	}}}
	return []fact{
		{"long-key", "emulator.md", "the request: InvalidArgument", one("single", strings.Repeat("k", 5000), set("cf", "q", 1000, "v"))},
		{"long-qualifier", "emulator.md", "the request: InvalidArgument", one("single", "k", set("cf", strings.Repeat("q", 20_000), 1000, "v"))},
		{"unknown-family", "protocol.md", "NotFound", one("single", "k", set("absent", "q", 1000, "v"))},
		{"family-delete", "emulator.md", "NotFound", one("single", "k", deletion)},
		{"unknown-profile", "emulator.md", "the request: NotFound", one("absent", "k", set("cf", "q", 1000, "v"))},
		{"mutation-of-no-kind", "emulator.md", "the request: InvalidArgument", one("single", "k", &bigtablepb.Mutation{})},
		{"negative-time", "protocol.md", "the request: InvalidArgument", func(ctx context.Context, f *facts) string {
			return strings.Join(f.mutate(ctx, "single", entry("k", set("cf", "q", 1000, "v")), entry("l", set("cf", "q", -2, "v"))), " ")
		}},
		{"granularity", "emulator.md", "the request: InvalidArgument", one("single", "k", set("cf", "q", 1001, "v"))},
		{"neighbours-of-an-unknown-family", "features.md, EMU-06", "NotFound NotFound", func(ctx context.Context, f *facts) string {
			return strings.Join(f.mutate(ctx, "single", entry("k", set("cf", "q", 1000, "v")), entry("l", set("absent", "q", 1000, "v"))), " ")
		}},
		{"order-within-a-request", "emulator.md", "the last of two entries of a row wins", func(ctx context.Context, f *facts) string {
			f.mutate(ctx, "single", entry("twice", set("cf", "q", 1000, "first")), entry("twice", set("cf", "q", 1000, "last")))
			values, err := f.cells(ctx, "twice")
			if err != nil || len(values) != 1 {
				return fmt.Sprintf("%q %v", values, err)
			}
			return fmt.Sprintf("the %s of two entries of a row wins", values[0])
		}},
		{"aggregate-set", "emulator.md", "the request: InvalidArgument", one("single", "k", set("sums", "q", 1000, "v"))},
		{"aggregate-merge-raw", "emulator.md", "the request: InvalidArgument", one("single", "k", merge)},
		{"idempotency", "emulator.md", "OK, OK: 5", func(ctx context.Context, f *facts) string {
			e := entry("counted", add(5))
			e.Idempotency = &bigtablepb.Idempotency{Token: []byte("0123456789abcdef")}
			first, second := f.mutate(ctx, "single", e), f.mutate(ctx, "single", e)
			return fmt.Sprintf("%s, %s: %s", strings.Join(first, " "), strings.Join(second, " "), f.sum(ctx, "counted"))
		}},
		{"idempotency-too-late", "emulator.md", "FailedPrecondition", func(ctx context.Context, f *facts) string {
			e := entry("late", add(5))
			e.Idempotency = &bigtablepb.Idempotency{Token: []byte("0123456789abcdef"), StartTime: timestamppb.New(time.Now().Add(-time.Hour))}
			return strings.Join(f.mutate(ctx, "single", e), " ")
		}},
		{"conditional-without-transactions", "emulator.md", "FailedPrecondition", func(ctx context.Context, f *facts) string {
			_, err := f.client.CheckAndMutateRow(f.through(ctx, "facts", "plain"), &bigtablepb.CheckAndMutateRowRequest{
				TableName: f.table("facts"), AppProfileId: "plain", RowKey: []byte("k"), FalseMutations: []*bigtablepb.Mutation{set("cf", "q", 1000, "v")},
			})
			return code(err)
		}},
	}
}

func readFacts() []fact {
	read := func(req *bigtablepb.ReadRowsRequest) func(context.Context, *facts) string {
		return func(ctx context.Context, f *facts) string { return f.read(ctx, req) }
	}
	stream := func(table, profile string, req func() *bigtablepb.ReadChangeStreamRequest) func(context.Context, *facts) string {
		return func(ctx context.Context, f *facts) string { return f.stream(ctx, table, profile, req()) }
	}
	at := func(d time.Duration) func() *bigtablepb.ReadChangeStreamRequest {
		return func() *bigtablepb.ReadChangeStreamRequest { return startAt(time.Now().Add(d)) }
	}
	many := make([][]byte, 150)
	for i := range many {
		many[i] = []byte(fmt.Sprintf("%04d", i) + strings.Repeat("k", 3800))
	}
	return []fact{
		{"read-empty-key", "emulator.md", "InvalidArgument", read(&bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: [][]byte{{}}}})},
		{"read-limit-negative", "emulator.md", "InvalidArgument", read(&bigtablepb.ReadRowsRequest{RowsLimit: -1})},
		{"read-too-large", "emulator.md", "InvalidArgument", read(&bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: many}})},
		{"stream-of-now", "protocol.md", "a heartbeat", stream("facts", "single", at(0))},
		{"stream-without-start", "emulator.md", "InvalidArgument", stream("facts", "single", func() *bigtablepb.ReadChangeStreamRequest { return &bigtablepb.ReadChangeStreamRequest{} })},
		{"stream-in-the-future", "emulator.md", "InvalidArgument", stream("facts", "single", at(time.Hour))},
		{"stream-before-it-was-on", "emulator.md", "InvalidArgument", stream("facts", "single", at(-12*time.Hour))},
		{"stream-beyond-retention", "emulator.md", "InvalidArgument", stream("facts", "single", at(-10*24*time.Hour))},
		{"stream-that-is-off", "emulator.md", "FailedPrecondition", stream("quiet", "single", at(0))},
		{"stream-of-many-clusters", "emulator.md", "FailedPrecondition", stream("facts", "multi", at(0))},
	}
}
