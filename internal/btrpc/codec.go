package btrpc

import (
	"errors"
	"fmt"
	"sync"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// entriesOf is a MutateRowsRequest whose entries are already measured.
type entriesOf struct {
	table *Table
	rows  []*bigtablepb.MutateRowsRequest_Entry
}

// outcomes takes MutateRowsResponse messages straight from the wire into errs: the
// generated message would cost two allocations for each entry that was applied.
type outcomes struct {
	errs             []error
	guard            sync.Locker // of errs
	answered, failed bool
	rate             *RateLimit
}

// codec is the protobuf codec, but for entriesOf and outcomes.
type codec struct{ encoding.CodecV2 }

var useCodec = grpc.ForceCodecV2(codec{encoding.GetCodecV2(grpcproto.Name)})

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	req, ok := v.(*entriesOf)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(req.size())
	b, err := req.append((*buf)[:0])
	if err != nil {
		pool.Put(buf)
		return nil, err
	}
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// measured trusts the sizes that proto.Size has left in the entries.
var measured = proto.MarshalOptions{UseCachedSize: true}

// Field numbers of google.bigtable.v2.MutateRowsRequest.
const (
	fieldTable   = 1
	fieldRows    = 2
	fieldProfile = 3
	fieldView    = 5 // in the place of the table
)

// subject is the field that says what is written to.
func (r *entriesOf) subject() (protowire.Number, string) {
	if r.table.view != "" {
		return fieldView, r.table.view
	}
	return fieldTable, r.table.name
}

func (r *entriesOf) size() int {
	n := 0
	_, subject := r.subject()
	for _, name := range []string{subject, r.table.profile} {
		n += 1 + protowire.SizeBytes(len(name))
	}
	for _, row := range r.rows {
		n += 1 + protowire.SizeBytes(measured.Size(row))
	}
	return n
}

func (r *entriesOf) append(b []byte) ([]byte, error) {
	field, subject := r.subject()
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendString(b, subject)
	for _, row := range r.rows {
		size := measured.Size(row)
		b = protowire.AppendTag(b, fieldRows, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
		start := len(b)
		var err error
		if b, err = measured.MarshalAppend(b, row); err != nil {
			return nil, err
		}
		if len(b)-start != size {
			return nil, errors.New("an entry was changed after it was measured")
		}
	}
	b = protowire.AppendTag(b, fieldProfile, protowire.BytesType)
	return protowire.AppendString(b, r.table.profile), nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	out, ok := v.(*outcomes)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return out.read(buf.ReadOnlyData())
}

// Field numbers of google.bigtable.v2.MutateRowsResponse and its Entry.
const (
	fieldEntries   = 1
	fieldRateLimit = 3
	fieldIndex     = 1
	fieldStatus    = 2
)

var errMalformed = errors.New("malformed MutateRowsResponse")

func (o *outcomes) read(b []byte) error {
	o.guard.Lock()
	defer o.guard.Unlock()
	o.answered = true
	return fields(b, func(num protowire.Number, typ protowire.Type, value []byte, _ uint64) error {
		switch {
		case num == fieldEntries && typ == protowire.BytesType:
			return o.entry(value)
		case num == fieldRateLimit && typ == protowire.BytesType:
			return o.rateLimit(value)
		}
		return nil
	})
}

func (o *outcomes) entry(b []byte) error {
	var index uint64
	var st []byte
	err := fields(b, func(num protowire.Number, typ protowire.Type, value []byte, n uint64) error {
		switch {
		case num == fieldIndex && typ == protowire.VarintType:
			index = n
		case num == fieldStatus && typ == protowire.BytesType:
			st = value
		}
		return nil
	})
	if err != nil {
		return err
	}
	if index >= uint64(len(o.errs)) {
		return fmt.Errorf("%w: index %d of %d entries", errMalformed, index, len(o.errs))
	}
	return o.set(int(index), st)
}

// set keeps the first outcome that an entry gets, unless a later one is a failure:
// success is only what nothing contradicts.
func (o *outcomes) set(i int, st []byte) error {
	var err error
	if len(st) > 0 {
		s := new(spb.Status)
		if err := proto.Unmarshal(st, s); err != nil {
			return fmt.Errorf("%w: status: %w", errMalformed, err)
		}
		err = status.ErrorProto(s)
	}
	if err != nil {
		o.failed = true
	}
	if o.errs[i] == ErrOmitted || err != nil {
		o.errs[i] = err
	}
	return nil
}

func (o *outcomes) rateLimit(b []byte) error {
	var info bigtablepb.RateLimitInfo
	if err := proto.Unmarshal(b, &info); err != nil {
		return fmt.Errorf("%w: rate limit: %w", errMalformed, err)
	}
	o.rate = &RateLimit{Period: max(0, info.GetPeriod().AsDuration()), Factor: info.GetFactor()}
	return nil
}

// fields calls f for each field of a message: with its bytes, or its number where
// it is a varint.
func fields(b []byte, f func(protowire.Number, protowire.Type, []byte, uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		var value []byte
		var varint uint64
		switch typ {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errMalformed
		}
		if err := f(num, typ, value, varint); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
