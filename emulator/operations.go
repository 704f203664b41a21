package emulator

import (
	"context"
	"fmt"
	"sync"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// keptOperations is how many operations can be looked up: the newest ones of
// this process.
const keptOperations = 1000

// operations is google.longrunning.Operations. Every operation has ended by
// the time that its name is known.
type operations struct {
	longrunningpb.UnimplementedOperationsServer

	mu     sync.Mutex
	count  uint64
	byName map[string]*longrunningpb.Operation
	names  []string // in order of age
}

// done is a long-running operation on a resource that has ended already.
func (e *Emulator) done(resource string, result, meta proto.Message) (*longrunningpb.Operation, error) {
	response, err := anypb.New(result)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "packing an operation's result: %v", err)
	}
	metadata, err := anypb.New(meta)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "packing an operation's metadata: %v", err)
	}
	op := &longrunningpb.Operation{Metadata: metadata, Done: true, Result: &longrunningpb.Operation_Response{Response: response}}
	o := &e.operations
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	op.Name = fmt.Sprintf("operations/%s/operations/%d-%d", resource, e.clock.micros(), o.count)
	if o.byName == nil {
		o.byName = map[string]*longrunningpb.Operation{}
	}
	o.byName[op.Name] = op
	if o.names = append(o.names, op.Name); len(o.names) > keptOperations {
		delete(o.byName, o.names[0])
		o.names = o.names[1:]
	}
	return op, nil
}

// GetOperation returns an operation.
func (o *operations) GetOperation(_ context.Context, req *longrunningpb.GetOperationRequest) (*longrunningpb.Operation, error) {
	return o.find(req.GetName())
}

// WaitOperation returns an operation, which has ended.
func (o *operations) WaitOperation(_ context.Context, req *longrunningpb.WaitOperationRequest) (*longrunningpb.Operation, error) {
	return o.find(req.GetName())
}

func (o *operations) find(name string) (*longrunningpb.Operation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op := o.byName[name]; op != nil {
		return op, nil
	}
	return nil, status.Errorf(codes.NotFound, "Operation not found: %s", name)
}

// CancelOperation does nothing: an operation that has ended stays as it is.
func (o *operations) CancelOperation(_ context.Context, req *longrunningpb.CancelOperationRequest) (*emptypb.Empty, error) {
	if _, err := o.find(req.GetName()); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// DeleteOperation forgets an operation.
func (o *operations) DeleteOperation(_ context.Context, req *longrunningpb.DeleteOperationRequest) (*emptypb.Empty, error) {
	if _, err := o.find(req.GetName()); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byName, req.Name)
	return &emptypb.Empty{}, nil
}
