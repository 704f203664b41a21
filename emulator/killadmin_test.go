package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// administered is what one administrator was told: the names of what must be
// there and of what must not. What a call that failed was about is in neither.
type administered struct {
	there, gone map[string]bool
}

// administerUntilKilled makes an instance with a table, a view, a policy and
// backups, and deletes some of them, over and over, until the child is dead.
func (a *administered) administerUntilKilled(ctx context.Context, conn grpc.ClientConnInterface, who string, acks *atomic.Int64) {
	tables, insts := adminpb.NewBigtableTableAdminClient(conn), adminpb.NewBigtableInstanceAdminClient(conn)
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s-%d", who, n)
		name := "projects/p/instances/" + id
		table, cluster := name+"/tables/t", name+"/clusters/cluster"
		expire := timestamppb.New(time.Now().Add(10 * time.Hour))
		backup := func(id string) func() error {
			return func() error {
				_, err := tables.CreateBackup(ctx, &adminpb.CreateBackupRequest{Parent: cluster, BackupId: id, Backup: &adminpb.Backup{SourceTable: table, ExpireTime: expire}})
				return err
			}
		}
		for _, step := range []struct {
			name string
			do   func() error
			gone bool // the step deletes it
		}{
			{name, func() error {
				_, err := insts.CreateInstance(ctx, &adminpb.CreateInstanceRequest{Parent: "projects/p", InstanceId: id, Instance: &adminpb.Instance{DisplayName: id},
					Clusters: map[string]*adminpb.Cluster{"cluster": {Location: "projects/p/locations/z"}}})
				return err
			}, false},
			{table, func() error {
				_, err := tables.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: name, TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {}}}})
				return err
			}, false},
			{table + "/authorizedViews/v", func() error {
				_, err := tables.CreateAuthorizedView(ctx, &adminpb.CreateAuthorizedViewRequest{Parent: table, AuthorizedViewId: "v", AuthorizedView: &adminpb.AuthorizedView{
					AuthorizedView: &adminpb.AuthorizedView_SubsetView_{SubsetView: &adminpb.AuthorizedView_SubsetView{RowPrefixes: [][]byte{[]byte("r")}}}}})
				return err
			}, false},
			{table + " policy", func() error {
				_, err := tables.SetIamPolicy(ctx, &iampb.SetIamPolicyRequest{Resource: table, Policy: binding("roles/bigtable.user", someone)})
				return err
			}, false},
			{cluster + "/backups/kept", backup("kept"), false},
			{cluster + "/backups/short", backup("short"), false},
			{cluster + "/backups/short", func() error {
				_, err := tables.DeleteBackup(ctx, &adminpb.DeleteBackupRequest{Name: cluster + "/backups/short"})
				return err
			}, true},
			{name + "/tables/r", func() error {
				_, err := tables.RestoreTable(ctx, &adminpb.RestoreTableRequest{Parent: name, TableId: "r", Source: &adminpb.RestoreTableRequest_Backup{Backup: cluster + "/backups/kept"}})
				return err
			}, false},
			{name + " of two nodes", func() error {
				_, err := insts.PartialUpdateCluster(ctx, &adminpb.PartialUpdateClusterRequest{Cluster: &adminpb.Cluster{Name: cluster, ServeNodes: 2},
					UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"serve_nodes"}}})
				return err
			}, false},
		} {
			delete(a.there, step.name)
			delete(a.gone, step.name)
			if step.do() != nil {
				return
			}
			if step.gone {
				a.gone[step.name] = true
			} else {
				a.there[step.name] = true
			}
			acks.Add(1)
		}
	}
}

// look reports whether what a step names is there.
func look(ctx context.Context, conn grpc.ClientConnInterface, name string) (bool, error) {
	tables, insts := adminpb.NewBigtableTableAdminClient(conn), adminpb.NewBigtableInstanceAdminClient(conn)
	var err error
	var path, what string
	if n, _ := fmt.Sscanf(name, "%s %s", &path, &what); n == 2 && what == "policy" {
		p, err := tables.GetIamPolicy(ctx, &iampb.GetIamPolicyRequest{Resource: path})
		return len(p.GetBindings()) == 1, err
	} else if n == 2 {
		c, err := insts.GetCluster(ctx, &adminpb.GetClusterRequest{Name: path + "/clusters/cluster"})
		return c.GetServeNodes() == 2, err
	}
	switch collection(name) {
	case "instances":
		_, err = insts.GetInstance(ctx, &adminpb.GetInstanceRequest{Name: name})
	case "tables":
		_, err = tables.GetTable(ctx, &adminpb.GetTableRequest{Name: name})
	case "authorizedViews":
		_, err = tables.GetAuthorizedView(ctx, &adminpb.GetAuthorizedViewRequest{Name: name})
	default:
		_, err = tables.GetBackup(ctx, &adminpb.GetBackupRequest{Name: name})
	}
	if status.Code(err) == codes.NotFound {
		return false, nil
	}
	return err == nil, err
}

func TestNothingAdministeredThatWasAcknowledgedIsLostToKill9(t *testing.T) {
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) { killAdminRound(t, uint64(round)) })
	}
}

func killAdminRound(t *testing.T, seed uint64) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(seed, 1))
	var all []*administered
	for life := range 2 {
		cmd, conn := startChild(t, dir)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var acks atomic.Int64
		var administrators sync.WaitGroup
		for w := range 3 {
			a := &administered{map[string]bool{}, map[string]bool{}}
			all = append(all, a)
			administrators.Go(func() { a.administerUntilKilled(ctx, conn, fmt.Sprintf("w%d-%d", life, w), &acks) })
		}
		suite := startSuite(t, conn.Target())
		for enough := 20 + random.Int64N(300); acks.Load() < enough && ctx.Err() == nil; {
			time.Sleep(time.Millisecond) // pacing of the kill only: any moment will do
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		administrators.Wait()
		cancel()
		_ = cmd.Wait() // says that it was killed
		stopSuite(t, suite)
		conn.Close()
		checkAdministered(t, dir, all)
	}
}

// startSuite runs the integration tests of Google's Go client against the child, if
// emulator/conformance/run has built them: all of them at once are a load of every kind.
func startSuite(t *testing.T, target string) *exec.Cmd {
	dir := os.Getenv("SUITE_DIR")
	if dir == "" {
		return nil
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "suite.test"), "-test.run", "^TestIntegration_")
	cmd.Dir = filepath.Join(dir, "bigtable")
	cmd.Env = append(os.Environ(), "SUITE_ADDRESS="+strings.TrimPrefix(target, "passthrough:///"), "SUITE_INSTANCE=suite")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// stopSuite ends the suite, whose emulator is dead.
func stopSuite(t *testing.T, suite *exec.Cmd) {
	if suite == nil {
		return
	}
	if err := suite.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = suite.Wait() // its tests fail once the emulator is dead
}

// checkAdministered opens the data directory and compares. Instances must be
// strict: otherwise there is one of every name.
func checkAdministered(t *testing.T, dir string, all []*administered) {
	t.Helper()
	e, err := emulator.New(emulator.Options{DataDir: dir, StrictInstances: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	conn, err := e.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	found := 0
	for _, a := range all {
		for want, names := range map[bool]map[string]bool{true: a.there, false: a.gone} {
			for name := range names {
				got, err := look(t.Context(), conn, name)
				if err != nil || got != want {
					t.Errorf("%s is there: %v, not %v (%v)", name, got, want, err)
				}
				found++
			}
		}
	}
	t.Logf("%d acknowledged calls looked up", found)
}

// collection is the collection of a resource name: the last but one part.
func collection(name string) string {
	parts := strings.Split(name, "/")
	return parts[len(parts)-2]
}
