package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

type aggregateKind int

const (
	aggregateSum aggregateKind = iota
	aggregateMin
	aggregateMax
	aggregateHLL
)

// Aggregate is how the cells of an aggregate family take new input. Sum, min
// and max keep an int64 as 8 big-endian bytes; a unique count keeps a sketch
// (hll.go) whose bytes mean nothing to a client.
type Aggregate struct {
	kind  aggregateKind
	input inputKind
}

type inputKind int

const (
	inputInt64 inputKind = iota
	inputBytes
	inputString
)

// newAggregate reads an aggregate type and fills in its state type.
func newAggregate(t *adminpb.Type) (*Aggregate, error) {
	agg := t.GetAggregateType()
	a := &Aggregate{}
	switch agg.Aggregator.(type) {
	case *adminpb.Type_Aggregate_Sum_:
		a.kind = aggregateSum
	case *adminpb.Type_Aggregate_Min_:
		a.kind = aggregateMin
	case *adminpb.Type_Aggregate_Max_:
		a.kind = aggregateMax
	case *adminpb.Type_Aggregate_HllppUniqueCount:
		a.kind = aggregateHLL
	default:
		return nil, errors.New("value_type.aggregate_type must name an aggregator")
	}
	switch agg.GetInputType().GetKind().(type) {
	case *adminpb.Type_Int64Type:
		a.input = inputInt64
	case *adminpb.Type_BytesType:
		a.input = inputBytes
	case *adminpb.Type_StringType:
		a.input = inputString
	default:
		return nil, errors.New("value_type.aggregate_type.input_type must be int64, bytes or string")
	}
	if a.kind != aggregateHLL && a.input != inputInt64 {
		return nil, errors.New("sum, min and max take an int64 input_type")
	}
	if a.kind == aggregateHLL {
		agg.StateType = &adminpb.Type{Kind: &adminpb.Type_BytesType{BytesType: rawBytes()}}
	} else {
		agg.StateType = agg.InputType
	}
	return a, nil
}

func rawBytes() *adminpb.Type_Bytes {
	return &adminpb.Type_Bytes{Encoding: &adminpb.Type_Bytes_Encoding{
		Encoding: &adminpb.Type_Bytes_Encoding_Raw_{Raw: &adminpb.Type_Bytes_Encoding_Raw{}},
	}}
}

// add makes the state that stands for one input of AddToCell.
func (a *Aggregate) add(v *bigtablepb.Value) ([]byte, error) {
	switch k := v.GetKind().(type) {
	case *bigtablepb.Value_IntValue:
		if a.input != inputInt64 {
			break
		}
		b := binary.BigEndian.AppendUint64(nil, uint64(k.IntValue))
		if a.kind == aggregateHLL {
			return hllOf(b), nil
		}
		return b, nil
	case *bigtablepb.Value_BytesValue:
		if a.input == inputBytes {
			return hllOf(k.BytesValue), nil
		}
	case *bigtablepb.Value_StringValue:
		if a.input == inputString {
			return hllOf([]byte(k.StringValue)), nil
		}
	}
	return nil, errors.New("the input does not match the family's value_type.input_type")
}

// state reads the accumulator that MergeToCell carries, nil for NULL. The
// service takes bytes_value and refuses raw_value (measured 2026-09-05,
// features.md SNK-41).
func (a *Aggregate) state(v *bigtablepb.Value) ([]byte, error) {
	if v.GetKind() == nil {
		return nil, nil
	}
	b, ok := v.Kind.(*bigtablepb.Value_BytesValue)
	if !ok {
		return nil, errors.New("the input must be a bytes_value that holds the family's value_type.state_type")
	}
	if a.kind == aggregateHLL {
		if err := hllCheck(b.BytesValue); err != nil {
			return nil, err
		}
		return b.BytesValue, nil
	}
	if len(b.BytesValue) != 8 {
		return nil, fmt.Errorf("an int64 accumulator has 8 bytes, not %d", len(b.BytesValue))
	}
	return b.BytesValue, nil
}

// combine joins two states. A sum wraps around, as int64 does.
func (a *Aggregate) combine(x, y []byte) []byte {
	if a.kind == aggregateHLL {
		return hllMerge(x, y)
	}
	i, j := int64(binary.BigEndian.Uint64(x)), int64(binary.BigEndian.Uint64(y))
	switch a.kind {
	case aggregateMin:
		i = min(i, j)
	case aggregateMax:
		i = max(i, j)
	default:
		i += j
	}
	return binary.BigEndian.AppendUint64(nil, uint64(i))
}
