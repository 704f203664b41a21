package btrpc

import (
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"
)

type (
	response = bigtablepb.ReadChangeStreamResponse
	chunkOf  = bigtablepb.ReadChangeStreamResponse_MutationChunk
)

func drawTimestamp(t *rapid.T, name string) *timestamppb.Timestamp {
	if rapid.IntRange(0, 5).Draw(t, name+"?") == 0 {
		return nil
	}
	return &timestamppb.Timestamp{Seconds: rapid.Int64().Draw(t, name), Nanos: rapid.Int32().Draw(t, name+" nanos")}
}

func drawMutation(t *rapid.T) *bigtablepb.Mutation {
	switch rapid.IntRange(0, 9).Draw(t, "mutation") {
	case 0:
		return nil
	case 1:
		return &bigtablepb.Mutation{}
	case 2:
		return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: "cf"}}}
	}
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: rapid.SampledFrom([]string{"", "cf", "other"}).Draw(t, "family"), ColumnQualifier: drawBytes(t, "qualifier"),
		TimestampMicros: rapid.Int64().Draw(t, "time"), Value: drawBytes(t, "value"),
	}}}
}

func drawChange(t *rapid.T) *response {
	if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
		return &response{StreamRecord: &bigtablepb.ReadChangeStreamResponse_Heartbeat_{Heartbeat: &bigtablepb.ReadChangeStreamResponse_Heartbeat{
			EstimatedLowWatermark: drawTimestamp(t, "watermark"),
		}}}
	}
	c := &bigtablepb.ReadChangeStreamResponse_DataChange{
		Type: bigtablepb.ReadChangeStreamResponse_DataChange_Type(rapid.Int32().Draw(t, "type")), SourceClusterId: rapid.String().Draw(t, "cluster"),
		RowKey: drawBytes(t, "key"), CommitTimestamp: drawTimestamp(t, "commit"), Tiebreaker: rapid.Int32().Draw(t, "tie"),
		Done: rapid.Bool().Draw(t, "done"), Token: rapid.String().Draw(t, "token"), EstimatedLowWatermark: drawTimestamp(t, "watermark"),
	}
	for range rapid.IntRange(0, 4).Draw(t, "chunks") {
		chunk := &chunkOf{Mutation: drawMutation(t)}
		if rapid.IntRange(0, 9).Draw(t, "chunked") == 0 {
			chunk.ChunkInfo = &bigtablepb.ReadChangeStreamResponse_MutationChunk_ChunkInfo{ChunkedValueSize: 5}
		}
		c.Chunks = append(c.Chunks, chunk)
	}
	return &response{StreamRecord: &bigtablepb.ReadChangeStreamResponse_DataChange_{DataChange: c}}
}

func changesAgree(t *rapid.T, codec *changesCodec, b []byte) {
	want := new(response)
	got := &response{StreamRecord: &bigtablepb.ReadChangeStreamResponse_CloseStream_{}}
	wantErr := proto.Unmarshal(b, want)
	err := codec.Unmarshal(split(t, b), got)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error %v, the library's %v", err, wantErr)
	}
	if err == nil && !proto.Equal(got, want) {
		t.Fatalf("%v\nwant %v", got, want)
	}
}

func TestChangesAreDecodedAsTheLibraryDoes(t *testing.T) {
	codec := &changesCodec{CodecV2: encoding.GetCodecV2("proto")} // each message overwrites one of before
	rapid.Check(t, func(t *rapid.T) {
		b, err := proto.Marshal(drawChange(t))
		if err != nil {
			t.Fatal(err)
		}
		changesAgree(t, codec, b)
		for range rapid.IntRange(0, 3).Draw(t, "faults") {
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
		changesAgree(t, codec, b)
	})
}

// What the fast way gives up on would be slow, not wrong: no other test would see it.
func TestOrdinaryChangesTakeTheFastWay(t *testing.T) {
	set := func(family, value string) *chunkOf {
		return &chunkOf{Mutation: &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
			FamilyName: family, ColumnQualifier: []byte("q"), TimestampMicros: 1000, Value: []byte(value),
		}}}}
	}
	want := &response{StreamRecord: &bigtablepb.ReadChangeStreamResponse_DataChange_{DataChange: &bigtablepb.ReadChangeStreamResponse_DataChange{
		Type: bigtablepb.ReadChangeStreamResponse_DataChange_USER, SourceClusterId: "c", RowKey: []byte("k"), Tiebreaker: 3, Done: true, Token: "t",
		CommitTimestamp: &timestamppb.Timestamp{Seconds: 5, Nanos: 6}, EstimatedLowWatermark: &timestamppb.Timestamp{},
		Chunks: []*chunkOf{set("cf", "a"), set("cf", ""), set("other", "b")},
	}}}
	b, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var block changeBlock
	for range 2 {
		if err := block.read(b); err != nil || !proto.Equal(&response{StreamRecord: &block.wrapper}, want) {
			t.Errorf("%v, %v", &block.change, err)
		}
	}
}
