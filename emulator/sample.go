package emulator

import (
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// SampleRowKeys answers with the boundaries between tablets and then the end
// of the table, or of the range that was asked for. Offsets are the bytes of
// the rows before a boundary; in a range they count from the boundary before
// the range's start. Through an authorized view it does so for each range of
// keys that the view includes.
func (d *dataService) SampleRowKeys(req *bigtablepb.SampleRowKeysRequest, stream bigtablepb.Bigtable_SampleRowKeysServer) error {
	if err := checkMaterialized(req.MaterializedViewName); err != nil {
		return err
	}
	subject, err := subjectOf(req.TableName, req.AuthorizedViewName)
	if err != nil {
		return err
	}
	t, v, err := d.e.readable(subject, req.AppProfileId)
	if err != nil {
		return err
	}
	sp := span{unbounded: true}
	if req.RowRange != nil {
		if sp, err = spanOf(req.RowRange); err != nil {
			return status.Errorf(codes.InvalidArgument, "Error in field 'row_range' : %s", status.Convert(err).Message())
		}
	}
	samples := t.samples(sp, endKey(req.RowRange))
	if v != nil {
		samples = samples[:0]
		for _, part := range v.within([]span{sp}) {
			samples = append(samples, t.samples(part, []byte(part.end))...)
		}
	}
	for _, sample := range samples {
		if err := stream.Send(sample); err != nil {
			return err
		}
	}
	return nil
}

// endKey is a range's end as the client wrote it.
func endKey(r *bigtablepb.RowRange) []byte {
	if k, ok := r.GetEndKey().(*bigtablepb.RowRange_EndKeyClosed); ok {
		return k.EndKeyClosed
	}
	return r.GetEndKeyOpen()
}

func (t *table) samples(sp span, end []byte) []*bigtablepb.SampleRowKeysResponse {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*bigtablepb.SampleRowKeysResponse
	i, offset := t.tabletAt(sp.start), int64(0)
	for ; i+1 < len(t.tablets); i++ {
		boundary := t.tablets[i+1].start
		if !sp.unbounded && boundary >= sp.end {
			break
		}
		offset += t.tablets[i].size
		out = append(out, &bigtablepb.SampleRowKeysResponse{RowKey: []byte(boundary), OffsetBytes: offset})
	}
	if sp.unbounded {
		offset += t.tablets[i].size
	} else {
		offset += t.sizeBetween(t.tablets[i].start, sp.end)
	}
	return append(out, &bigtablepb.SampleRowKeysResponse{RowKey: end, OffsetBytes: offset})
}
