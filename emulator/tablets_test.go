package emulator_test

import (
	"fmt"
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

func (f *fixture) boundaries(t testing.TB) []string {
	t.Helper()
	tablets, err := f.Tablets(tableT)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i, tab := range tablets {
		if i > 0 && string(tablets[i-1].End) != string(tab.Start) || i == 0 && len(tab.Start) > 0 || i == len(tablets)-1 && len(tab.End) > 0 {
			t.Fatalf("the tablets do not tile the table: %+v", tablets)
		}
		out = append(out, string(tab.Start))
	}
	return out[1:]
}

func TestInitialSplitsMakeTablets(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t, func(r *adminpb.CreateTableRequest) {
		for _, k := range []string{"m", "a", "m"} {
			r.InitialSplits = append(r.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(k)})
		}
	})
	if got := f.boundaries(t); !slices.Equal(got, []string{"a", "m"}) {
		t.Errorf("%q", got)
	}
}

func TestTabletsSplitBySize(t *testing.T) {
	f := start(t, emulator.Options{TabletBytes: 10_000})
	f.create(t)
	for i := range 200 {
		f.write(t, entry(fmt.Sprintf("k%04d", i*37%200), setCell("a", "q", 0, make([]byte, 200))))
	}
	tablets, err := f.Tablets(tableT)
	if err != nil || len(tablets) < 5 {
		t.Fatalf("%d tablets, %v", len(tablets), err)
	}
	for _, tab := range tablets {
		if tab.Bytes > 10_000 || tab.Bytes < 2_000 {
			t.Errorf("a tablet of %d bytes", tab.Bytes)
		}
	}
	one := start(t, emulator.Options{TabletBytes: 1000})
	one.create(t)
	for range 5 {
		one.write(t, entry("the only row", setCell("a", "q", 0, make([]byte, 5000))))
	}
	if got := one.boundaries(t); len(got) != 0 {
		t.Errorf("a row was split: %q", got)
	}
}

func TestTabletsSplitMergeShiftAndMoveOnDemand(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(f.SplitTablet(tableT, []byte("b")))
	do(f.SplitTablet(tableT, []byte("d")))
	do(f.ShiftTablets(tableT, []byte("b"), []byte("c")))
	if got := f.boundaries(t); !slices.Equal(got, []string{"c", "d"}) {
		t.Fatalf("%q", got)
	}
	before, err := f.Tablets(tableT)
	do(err)
	do(f.MoveTablet(tableT, []byte("cc")))
	after, err := f.Tablets(tableT)
	do(err)
	for i := range before {
		if moved := before[i].ID != after[i].ID; moved != (i == 1) {
			t.Errorf("tablet %d: %+v became %+v", i, before[i], after[i])
		}
	}
	do(f.MergeTablets(tableT, []byte("c")))
	if got := f.boundaries(t); !slices.Equal(got, []string{"d"}) {
		t.Fatalf("%q", got)
	}
	refused(t, "split at a boundary", f.SplitTablet(tableT, []byte("d")), codes.FailedPrecondition, "")
	refused(t, "split at the start", f.SplitTablet(tableT, nil), codes.FailedPrecondition, "")
	refused(t, "merge at no boundary", f.MergeTablets(tableT, []byte("x")), codes.FailedPrecondition, "")
	refused(t, "merge at the start", f.MergeTablets(tableT, nil), codes.FailedPrecondition, "")
	refused(t, "shift to where it is", f.ShiftTablets(tableT, []byte("d"), []byte("d")), codes.FailedPrecondition, "")
	refused(t, "shift to the start", f.ShiftTablets(tableT, []byte("d"), nil), codes.FailedPrecondition, "")
	refused(t, "no table", f.MoveTablet("nope", nil), codes.NotFound, "")
}

// covers: TST-03
func TestTabletsAlwaysTileTheTableAndTheirSizesAddUp(t *testing.T) {
	key := rapid.StringMatching("[a-d]{1,2}")
	rapid.Check(t, func(rt *rapid.T) {
		f := start(t, emulator.Options{TabletBytes: rapid.SampledFrom([]int64{-1, 300}).Draw(rt, "limit")})
		f.create(t)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			k := []byte(key.Draw(rt, "key"))
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0:
				_ = f.SplitTablet(tableT, k) // refused where a tablet starts already
			case 1:
				_ = f.MergeTablets(tableT, k)
			case 2:
				_ = f.ShiftTablets(tableT, k, []byte(key.Draw(rt, "to")))
			case 3:
				if err := f.MoveTablet(tableT, k); err != nil {
					rt.Fatal(err)
				}
			case 4:
				f.write(t, entry(string(k), deleteFromRow()))
			default:
				f.write(t, entry(string(k), setCell("a", "q", 0, make([]byte, rapid.IntRange(0, 100).Draw(rt, "bytes")))))
			}
		}
		boundaries := f.boundaries(t)
		tablets, err := f.Tablets(tableT)
		if err != nil {
			rt.Fatal(err)
		}
		sizes := map[string]int64{}
		rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
		if err != nil {
			rt.Fatal(err)
		}
		for _, r := range rows {
			k := keysOf([]string{r})[0]
			i := 0
			for i < len(boundaries) && boundaries[i] <= k {
				i++
			}
			sizes[string(tablets[i].Start)] += int64(len(r)) - int64(len(" a:q@0=")) + int64(len("aq")) + 16
		}
		for _, tab := range tablets {
			if sizes[string(tab.Start)] != tab.Bytes {
				rt.Fatalf("tablet %q counts %d bytes and holds %d", tab.Start, tab.Bytes, sizes[string(tab.Start)])
			}
		}
	})
}
