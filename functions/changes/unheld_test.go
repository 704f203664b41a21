package changes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// An outage is longer than the table keeps its changes, and begins while keys are in no
// partition: their token waits for another source of a merged partition, or their partition
// is lost. They are told as expired like those of a partition: under fail nothing is read past
// the gap, and else an error says which changes are lost, and the stream goes on.
//
// covers: CS-12
// stream-case: 38
func TestAnExpiredPlaceThatNobodyHoldsIsTold(t *testing.T) {
	unheld := map[string]func(t *testing.T, r *rig){
		"pending": func(t *testing.T, r *rig) {
			must(t, r.emulator.MergeTablets(tableName, []byte("g")))
			r.deliver(t.Context(), r.cfg, taskOf(t, r.partitionOf("a")))
			must(t, r.emulator.SplitTablet(tableName, []byte("g"))) // the other source never sees the merge
			if got := r.outcomes(); got != "closed" {
				t.Fatalf("%s", got)
			}
		},
		"missing": func(t *testing.T, r *rig) {
			r.lose(r.partitionOf("a"))
			for range 3 {
				r.tick() // it is missed
			}
			r.take()
		},
	}
	for name, lose := range unheld {
		for policy, want := range map[string]string{"fail": "map[]", "earliest": "map[a:[2 3] z:[2 3]]"} {
			t.Run(name+" under "+policy, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, "onExpired: "+policy+", "+toLog, "g")
					r.round()
					r.outcomes()
					lose(t, r)
					top, err := r.ledger(r.store).Topology(t.Context(), streamID)
					if err != nil || len(top.Partitions) != 1 || len(top.Pending)+len(top.Stream.Missing) != 1 {
						t.Fatalf("%+v, %v", top, err)
					}
					r.set("a", 1)
					r.set("z", 1)
					time.Sleep(25 * time.Hour)
					r.set("a", 2)
					r.set("z", 2)
					for range 30 {
						r.round()
					}
					r.set("a", 3)
					r.set("z", 3)
					for range 12 {
						r.round()
					}
					if got := fmt.Sprint(r.values()); got != want {
						t.Errorf("%s, want %s: %s", got, want, r.log)
					}
					must(t, r.held())
					told := strings.Count(r.log.String(), "changes are lost")
					if policy == "fail" {
						for _, row := range []string{"a", "z"} {
							if p := r.partitionOf(row); !strings.Contains(p.LastError, "onExpired: fail") || p.Fruitless == 0 {
								t.Errorf("the partition of %s: %q, %d visits in vain", row, p.LastError, p.Fruitless)
							}
						}
					} else if told != 2 {
						t.Errorf("%d losses are told: %s", told, r.log)
					}
				})
			})
		}
	}
}

// lose deletes the document of a partition.
func (r *rig) lose(p *ledger.Partition) {
	r.t.Helper()
	for key, doc := range r.store.(*storetest.Memory).Backup() {
		if key.ID != p.Incarnation {
			continue
		}
		_, err := r.store.Commit(context.Background(), []ledger.Write{{Op: ledger.OpDelete, Key: key, Version: doc.Version}})
		must(r.t, err)
	}
}

// Two clusters change one cell at one commit time: the records have ids of their own, and say by
// cluster and tie breaker which of them wins. Those of one cluster come in its order.
//
// stream-case: 44, 53
func TestChangesOfTwoClustersAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toLog)
		_, err := adminpb.NewBigtableInstanceAdminClient(r.conn).CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{
			Parent: instance, AppProfileId: "two", AppProfile: &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{
				SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: "c2"},
			}},
		})
		must(t, err)
		must(t, r.emulator.SetStream(tableName, emulator.StreamSettings{EqualCommitTimes: true}))
		r.tick()
		for _, profile := range []string{"one", "two", "one"} {
			_, err := bigtablepb.NewBigtableClient(r.conn).MutateRow(t.Context(), &bigtablepb.MutateRowRequest{
				TableName: tableName, AppProfileId: profile, RowKey: []byte("a"), Mutations: []*bigtablepb.Mutation{setCell("cf", "q", "v")},
			})
			must(t, err)
		}
		r.work()
		var got []string
		ids, times := map[string]bool{}, map[time.Time]bool{}
		for _, rec := range r.records {
			var c struct {
				Cluster    string
				CommitTime time.Time
				TieBreaker int
			}
			must(t, json.Unmarshal(rec.Body, &c))
			got = append(got, fmt.Sprint(c.Cluster, " ", c.TieBreaker))
			ids[rec.ID()], times[c.CommitTime] = true, true
		}
		if fmt.Sprint(got) != "[c1 0 c2 1 c1 2]" || len(ids) != 3 || len(times) != 1 {
			t.Errorf("%q with %d ids and %d commit times", got, len(ids), len(times))
		}
	})
}
