package writer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// catalogue is a table administration with one table, and a data service that knows
// what the table has.
type catalogue struct {
	mu       sync.Mutex
	exists   bool
	families map[string]*adminpb.ColumnFamily
	service
}

func newCatalogue(families ...string) *catalogue {
	c := &catalogue{exists: len(families) > 0, families: map[string]*adminpb.ColumnFamily{}}
	for _, f := range families {
		c.families[f] = &adminpb.ColumnFamily{}
	}
	c.mutate, c.get, c.create, c.modify = c.mutateRows, c.getTable, c.createTable, c.modifyFamilies
	return c
}

func (c *catalogue) mutateRows(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.exists {
		return nil, status.Error(codes.NotFound, "table not found")
	}
	out := make([]*spb.Status, len(r.Entries))
	for i, e := range r.Entries {
		if _, absent := absentFamily(e, c.families); absent {
			out[i] = code(codes.NotFound)
		}
	}
	return out, nil
}

func (c *catalogue) getTable(_ int, _ *adminpb.GetTableRequest) (*adminpb.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.exists {
		return nil, status.Error(codes.NotFound, "table not found")
	}
	return &adminpb.Table{ColumnFamilies: maps.Clone(c.families)}, nil
}

func (c *catalogue) createTable(_ int, r *adminpb.CreateTableRequest) (*adminpb.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exists {
		return nil, status.Error(codes.AlreadyExists, "table")
	}
	c.exists, c.families = true, maps.Clone(r.Table.ColumnFamilies)
	return r.Table, nil
}

func (c *catalogue) modifyFamilies(_ int, r *adminpb.ModifyColumnFamiliesRequest) (*adminpb.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range r.Modifications {
		if _, there := c.families[m.Id]; there {
			return nil, status.Error(codes.AlreadyExists, m.Id)
		}
	}
	for _, m := range r.Modifications {
		c.families[m.Id] = m.GetCreate()
	}
	return &adminpb.Table{ColumnFamilies: maps.Clone(c.families)}, nil
}

func in(family, key string) Entry {
	e := set(key)
	e.Row.Mutations = []*bigtablepb.Mutation{setCell(family, 1000)}
	return e
}

// schema declares families of a table that may be created or not.
func schema(create pipeline.Create, families ...string) func(*Config) {
	s := Schema{Name: "orders", Create: create}
	for _, f := range families {
		s.Families = append(s.Families, &pipeline.Family{Name: f})
	}
	return func(c *Config) { c.Schema = func(pipeline.TableRef) (Schema, error) { return s, nil } }
}

// issue-row: 1
// covers: FAIL-03, TBL-12
func TestOneAbsentFamilyRefusesOnlyItsEntry(t *testing.T) {
	c := newCatalogue("cf")
	w := start(t, &c.service, schema(pipeline.CreateNever, "cf", "gone"))
	errs := w.Apply(within(t, time.Minute), []Entry{in("cf", "a"), in("gone", "b"), in("cf", "c")})
	var e *Error
	if errs[0] != nil || errs[2] != nil || !errors.As(errs[1], &e) || e.Code != codes.NotFound || !strings.Contains(e.Error(), `family "gone"`) {
		t.Errorf("%v", errs)
	}
	if retry.IsRejected(errs[1]) {
		t.Error("a dropping policy would see a missing family")
	}
	if c.count("MutateRows") != 1 || c.count("GetTable") != 1 {
		t.Errorf("%d requests, %d reads of the schema", c.count("MutateRows"), c.count("GetTable"))
	}
}

// covers: TBL-01, TBL-12
func TestAMissingTableIsRefusedWhereItMustNotBeCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogue()
		w := start(t, &c.service, schema(pipeline.CreateNever, "cf"))
		for range 10 {
			err := w.Apply(within(t, time.Minute), sets(3))[0]
			if err == nil || retry.IsRejected(err) || !strings.Contains(err.Error(), `tables.orders.create is "never"`) {
				t.Errorf("%v", err)
			}
		}
		if n := c.count("GetTable"); n != 1 {
			t.Errorf("the schema was read %d times in a minute", n)
		}
		time.Sleep(time.Minute)
		w.Apply(within(t, time.Minute), sets(1))
		if n := c.count("GetTable"); n != 2 || c.count("CreateTable") != 0 {
			t.Errorf("the schema was read %d times, the table made %d times", n, c.count("CreateTable"))
		}
	})
}

func TestAWholeRequestRefusedForOneFamilyIsTakenApart(t *testing.T) {
	whole := func(c *catalogue) func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		return func(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			for _, e := range r.Entries {
				if _, absent := absentFamily(e, c.families); absent {
					return nil, status.Error(codes.NotFound, "family not found")
				}
			}
			return nil, nil
		}
	}
	for name, get := range map[string]func(int, *adminpb.GetTableRequest) (*adminpb.Table, error){
		"by its families": nil,
		"by halving": func(int, *adminpb.GetTableRequest) (*adminpb.Table, error) {
			return nil, status.Error(codes.PermissionDenied, "no")
		},
	} {
		c := newCatalogue("cf")
		c.mutate = whole(c)
		if get != nil {
			c.get = get
		}
		w := start(t, &c.service, schema(pipeline.CreateNever, "cf", "gone"))
		entries := sets(100)
		entries[42] = in("gone", "bad")
		for i, err := range w.Apply(within(t, time.Minute), entries) {
			if (err != nil) != (i == 42) || retry.IsRejected(err) {
				t.Errorf("%s: entry %d: %v", name, i, err)
			}
		}
	}
}

// covers: TBL-02, TBL-03, TBL-08, TBL-10, MET-08
func TestAMissingTableIsCreatedOnFirstContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogue()
		gc := &pipeline.GCRule{Union: []*pipeline.GCRule{{MaxVersions: 1}, {Intersection: []*pipeline.GCRule{{MaxAge: time.Hour}, {MaxVersions: 3}}}}}
		w := start(t, &c.service, func(cfg *Config) {
			cfg.Schema = func(pipeline.TableRef) (Schema, error) {
				return Schema{Name: "orders", Create: pipeline.CreateIfNeeded, Families: []*pipeline.Family{
					{Name: "cf", GC: gc}, {Name: "totals", Aggregate: pipeline.AggregateSum},
				}}, nil
			}
		})
		if c.count("Dial") != 0 {
			t.Error("connected before the first entry")
		}
		wantApplied(t, w.Apply(within(t, time.Minute), sets(700)))
		if c.count("CreateTable") != 1 || c.count("Dial") != 2 {
			t.Errorf("created %d times over %d connections", c.count("CreateTable"), c.count("Dial"))
		}
		want := `union:{rules:{max_num_versions:1} rules:{intersection:{rules:{max_age:{seconds:3600}} rules:{max_num_versions:3}}}}`
		if got := strings.ReplaceAll(c.families["cf"].GcRule.String(), "  ", " "); got != want {
			t.Errorf("rule %s", got)
		}
		if v := c.families["totals"].ValueType.GetAggregateType(); v.GetSum() == nil || v.GetInputType().GetInt64Type().GetEncoding().GetBigEndianBytes() == nil {
			t.Errorf("type %v", v)
		}
		if c.families["totals"].GcRule != nil || c.families["cf"].ValueType != nil {
			t.Errorf("%v", c.families)
		}
		if st := w.Stats(); st.TablesCreated != 1 || st.FamiliesAdded != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// covers: TBL-08, MET-08
func TestMissingFamiliesAreAddedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogue("cf")
		w := start(t, &c.service, schema(pipeline.CreateIfNeeded, "cf", "x", "y"))
		wantApplied(t, w.Apply(within(t, time.Minute), []Entry{in("cf", "a"), in("x", "b"), in("y", "c")}))
		if c.count("ModifyColumnFamilies") != 1 || c.count("CreateTable") != 0 {
			t.Errorf("%d changes", c.count("ModifyColumnFamilies"))
		}
		if st := w.Stats(); st.FamiliesAdded != 2 || st.Parked != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// covers: TBL-09
func TestAnUndeclaredFamilyIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogue("cf")
		w := start(t, &c.service, schema(pipeline.CreateIfNeeded, "cf"))
		begin := time.Now()
		errs := w.Apply(within(t, time.Minute), []Entry{in("cf", "a"), in("other", "b")})
		if errs[0] != nil || errs[1] == nil || retry.IsRejected(errs[1]) || !strings.Contains(errs[1].Error(), `"other"`) || !strings.Contains(errs[1].Error(), "tables/orders") {
			t.Errorf("%v", errs)
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("waited %v", d)
		}
	})
}

// covers: TBL-03
func TestATableThatIsStillBeingMadeIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogue()
		begin := time.Now()
		var reapplied []time.Duration
		c.mutate = func(ctx context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if n > 1 {
				reapplied = append(reapplied, time.Since(begin))
			}
			switch {
			case n == 1:
				return nil, status.Error(codes.NotFound, "table not found")
			case n == 2:
				return nil, status.Error(codes.FailedPrecondition, "table is being created")
			case n < 6:
				return nil, status.Error(codes.NotFound, "table not found")
			}
			return nil, nil
		}
		w := start(t, &c.service, schema(pipeline.CreateIfNeeded, "cf"))
		wantApplied(t, w.Apply(within(t, time.Minute), sets(3)))
		ms := time.Millisecond
		if want := []time.Duration{0, 500 * ms, 1500 * ms, 3500 * ms, 7500 * ms}; !slices.Equal(reapplied, want) {
			t.Errorf("sent again after %v, want %v", reapplied, want)
		}
	})
}

// covers: TBL-06, TBL-07, TBL-13, TBL-16
func TestARepairThatFailsRefusesAfterItsBudget(t *testing.T) {
	for _, denied := range []codes.Code{codes.PermissionDenied, codes.Unavailable, codes.NotFound} {
		synctest.Test(t, func(t *testing.T) {
			c := newCatalogue()
			c.create = func(int, *adminpb.CreateTableRequest) (*adminpb.Table, error) { return nil, status.Error(denied, "no") }
			w := start(t, &c.service, schema(pipeline.CreateIfNeeded, "cf"))
			begin := time.Now()
			errs := w.Apply(within(t, 5*time.Minute), sets(2))
			for _, err := range errs {
				if err == nil || retry.IsRejected(err) || !strings.Contains(err.Error(), denied.String()) {
					t.Errorf("%v", err)
				}
			}
			if denied == codes.PermissionDenied && !strings.Contains(errs[0].Error(), "bigtable.tables.create") {
				t.Errorf("%v", errs[0])
			}
			if d := time.Since(begin); d < 50*time.Second || d > 70*time.Second { // 10 attempts
				t.Errorf("gave up after %v", d)
			}
			if n := c.count("CreateTable"); n != 10 {
				t.Errorf("%d attempts", n)
			}
		})
	}
}

// covers: TBL-05
func TestParkedEntriesEndWithTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogue()
		c.create = func(int, *adminpb.CreateTableRequest) (*adminpb.Table, error) {
			return nil, status.Error(codes.Unavailable, "no")
		}
		w := start(t, &c.service, schema(pipeline.CreateIfNeeded, "cf"))
		var wg sync.WaitGroup
		wg.Go(func() {
			if errs := w.Apply(within(t, 5*time.Second), sets(2)); errs[0] == nil || errs[1] == nil {
				t.Errorf("%v", errs)
			}
		})
		synctest.Wait()
		if n := w.Stats().Parked; n != 2 {
			t.Errorf("%d parked", n)
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if st := w.Stats(); st.Parked != 0 || st.InFlightEntries != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// covers: TBL-04
func TestLostRacesEndInTheSameTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogue()
		families := []string{"a", "b", "c"}
		// Another process makes the table, and then one family after another, each just
		// before we do.
		c.create = func(int, *adminpb.CreateTableRequest) (*adminpb.Table, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.exists = true
			return nil, status.Error(codes.AlreadyExists, "table")
		}
		c.modify = func(n int, r *adminpb.ModifyColumnFamiliesRequest) (*adminpb.Table, error) {
			if n <= len(families) {
				c.mu.Lock()
				c.families[families[n-1]] = &adminpb.ColumnFamily{}
				c.mu.Unlock()
			}
			return c.modifyFamilies(n, r)
		}
		w := start(t, &c.service, schema(pipeline.CreateIfNeeded, families...))
		begin := time.Now()
		wantApplied(t, w.Apply(within(t, time.Minute), []Entry{in("a", "1"), in("b", "2"), in("c", "3")}))
		if d := time.Since(begin); d != 0 {
			t.Errorf("spent %v on backoff", d)
		}
	})
}

// covers: TBL-04
func TestEightWritersRepairOneTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogue()
		dial := c.serve(t)
		var wg sync.WaitGroup
		for p := range 8 {
			cfg := config(dial)
			schema(pipeline.CreateIfNeeded, "cf", fmt.Sprint("own-", p))(&cfg)
			w, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				for i := range 20 {
					wantApplied(t, w.Apply(within(t, time.Minute), []Entry{in("cf", fmt.Sprint(p, i)), in(fmt.Sprint("own-", p), fmt.Sprint(p, i, "b"))}))
				}
				if err := w.Close(within(t, time.Minute)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(c.families) != 9 {
			t.Errorf("%d families", len(c.families))
		}
	})
}

// covers: TBL-15
func TestComputedTablesShareOneSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := map[string]bool{}
		var mu sync.Mutex
		s := &service{}
		s.get = func(_ int, r *adminpb.GetTableRequest) (*adminpb.Table, error) {
			return nil, status.Error(codes.NotFound, "none")
		}
		s.create = func(_ int, r *adminpb.CreateTableRequest) (*adminpb.Table, error) {
			mu.Lock()
			defer mu.Unlock()
			made[r.Parent+"/tables/"+r.TableId] = r.Table.ColumnFamilies["cf"] != nil
			return r.Table, nil
		}
		s.mutate = func(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			mu.Lock()
			defer mu.Unlock()
			if !made[r.TableName] {
				return nil, status.Error(codes.NotFound, "none")
			}
			return nil, nil
		}
		w := start(t, s, schema(pipeline.CreateIfNeeded, "cf"))
		var entries []Entry
		for day := range 7 {
			ref := orders
			ref.Table = fmt.Sprintf("orders-2026-08-%02d", day+1)
			entries = append(entries, setIn(ref, "k"))
		}
		wantApplied(t, w.Apply(within(t, time.Minute), entries))
		if len(made) != 7 {
			t.Errorf("%v", made)
		}
	})
}

func TestATableWithoutASchemaIsRefused(t *testing.T) {
	s := &service{}
	w := start(t, s, func(c *Config) { c.Schema = Schemas(nil) })
	err := w.Apply(within(t, time.Minute), sets(1))[0]
	if err == nil || retry.IsRejected(err) || !strings.Contains(err.Error(), `no such table in instance "i"`) {
		t.Errorf("%v", err)
	}
}
