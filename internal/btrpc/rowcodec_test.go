package btrpc

import (
	"reflect"
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

func drawBytes(t *rapid.T, name string) []byte {
	return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, name)
}

func drawResponse(t *rapid.T) *bigtablepb.ReadRowsResponse {
	res := &bigtablepb.ReadRowsResponse{LastScannedRowKey: drawBytes(t, "scanned")}
	for range rapid.IntRange(0, 5).Draw(t, "chunks") {
		c := &bigtablepb.ReadRowsResponse_CellChunk{
			RowKey: drawBytes(t, "key"), TimestampMicros: rapid.Int64().Draw(t, "time"), Value: drawBytes(t, "value"),
			ValueSize: rapid.Int32().Draw(t, "size"), Labels: rapid.SliceOfN(rapid.String(), 0, 2).Draw(t, "labels"),
		}
		if rapid.Bool().Draw(t, "hasFamily") {
			c.FamilyName = wrapperspb.String(rapid.SampledFrom([]string{"", "cf", "other"}).Draw(t, "family"))
		}
		if rapid.Bool().Draw(t, "hasQualifier") {
			c.Qualifier = wrapperspb.Bytes(drawBytes(t, "qualifier"))
		}
		switch rapid.IntRange(0, 3).Draw(t, "status") {
		case 1:
			c.RowStatus = &bigtablepb.ReadRowsResponse_CellChunk_ResetRow{ResetRow: rapid.Bool().Draw(t, "reset")}
		case 2:
			c.RowStatus = &bigtablepb.ReadRowsResponse_CellChunk_CommitRow{CommitRow: true}
		}
		res.Chunks = append(res.Chunks, c)
	}
	if rapid.IntRange(0, 9).Draw(t, "stats") == 0 {
		res.RequestStats = &bigtablepb.RequestStats{}
	}
	return res
}

// split lays bytes out as they arrive: in any number of buffers.
func split(t *rapid.T, b []byte) mem.BufferSlice {
	var s mem.BufferSlice
	for len(b) > 0 {
		n := rapid.IntRange(1, len(b)).Draw(t, "frame")
		s = append(s, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return s
}

func agree(t *rapid.T, b []byte) *bigtablepb.ReadRowsResponse {
	want, got := new(bigtablepb.ReadRowsResponse), &bigtablepb.ReadRowsResponse{LastScannedRowKey: []byte("of before")}
	wantErr := proto.Unmarshal(b, want)
	err := rowsCodec{encoding.GetCodecV2("proto")}.Unmarshal(split(t, b), got)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error %v, the library's %v", err, wantErr)
	}
	if err == nil && (!proto.Equal(got, want) || !slices.Equal(absent(got), absent(want))) {
		t.Fatalf("%v\nwant %v", got, want)
	}
	return got
}

// absent says which byte fields are nil, which the official client tells from empty.
func absent(res *bigtablepb.ReadRowsResponse) []bool {
	out := []bool{res.LastScannedRowKey == nil}
	for _, c := range res.Chunks {
		out = append(out, c.RowKey == nil, c.Value == nil, c.GetQualifier().GetValue() == nil, c.Labels == nil)
	}
	return out
}

func TestRowsAreDecodedAsTheLibraryDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := proto.Marshal(drawResponse(t))
		if err != nil {
			t.Fatal(err)
		}
		agree(t, b)
	})
}

func TestBrokenRowsAreDecodedOrRefusedAsTheLibraryDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := proto.Marshal(drawResponse(t))
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 3).Draw(t, "faults") {
			if len(b) == 0 {
				break
			}
			i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "fault") {
			case 0:
				b[i] = rapid.Byte().Draw(t, "byte")
			case 1:
				b = b[:i]
			case 2: // a field again, or a piece of one
				b = slices.Concat(b, b[i:])
			}
		}
		agree(t, b)
	})
}

// The official client appends the parts of a large value to the first.
func TestAppendingToADecodedValueLeavesItsNeighboursAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := proto.Marshal(drawResponse(t))
		if err != nil {
			t.Fatal(err)
		}
		res := agree(t, b)
		before := proto.Clone(res)
		for _, c := range res.Chunks {
			for _, field := range [][]byte{c.RowKey, c.Value, c.GetQualifier().GetValue()} {
				_ = append(field, "overwritten"...)
			}
		}
		if !proto.Equal(res, before) {
			t.Fatalf("%v became %v", before, res)
		}
	})
}

// What the fast way gives up on would be slow, not wrong: no other test would see it.
func TestOrdinaryRowsTakeTheFastWay(t *testing.T) {
	want := &bigtablepb.ReadRowsResponse{
		LastScannedRowKey: []byte("z"),
		Chunks: []*bigtablepb.ReadRowsResponse_CellChunk{
			{RowKey: []byte("k"), FamilyName: wrapperspb.String("cf"), Qualifier: wrapperspb.Bytes([]byte("q")), TimestampMicros: -1, Labels: []string{"l", ""}, Value: []byte("a"), ValueSize: 2},
			{Value: []byte("b")},
			{FamilyName: wrapperspb.String(""), Qualifier: wrapperspb.Bytes(nil), RowStatus: &bigtablepb.ReadRowsResponse_CellChunk_CommitRow{CommitRow: true}},
			{RowStatus: &bigtablepb.ReadRowsResponse_CellChunk_ResetRow{ResetRow: true}},
		},
	}
	b, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := new(bigtablepb.ReadRowsResponse)
	if err := readRows(b, got); err != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if again, err := proto.Marshal(got); err != nil || !reflect.DeepEqual(again, b) {
		t.Errorf("it is written again as %x, %v, want %x", again, err, b)
	}
}
