package emulator

import (
	"context"
	"path"

	"google.golang.org/grpc"
)

// tableOf is the table that a request names, itself or by an authorized view
// of it, "" if none.
func tableOf(req any) string {
	if view := viewOf(req); view != "" {
		table, _ := parentOf(view)
		return table
	}
	switch r := req.(type) {
	case interface{ GetTableName() string }:
		return r.GetTableName()
	case interface{ GetName() string }:
		return r.GetName()
	}
	return ""
}

// unary refuses what the caller may not do and lets faults hit unary calls.
func (e *Emulator) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := checkServed(info.FullMethod); err != nil {
		return nil, err
	}
	if err := e.authorize(ctx, info.FullMethod, req); err != nil {
		return nil, err
	}
	f := e.faults.match(path.Base(info.FullMethod), tableOf(req))
	if f == nil {
		return handler(ctx, req)
	}
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	res, err := handler(context.WithValue(ctx, faultKey{}, f), req)
	if err == nil {
		err = f.after()
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// stream does the same for streaming calls.
func (e *Emulator) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := checkServed(info.FullMethod); err != nil {
		return err
	}
	method := path.Base(info.FullMethod)
	s := &faultyStream{ServerStream: ss, e: e, method: method, swallow: method == "MutateRows"}
	err := handler(srv, s)
	if err == nil && s.fault != nil {
		if err = s.fault.after(); err == nil && s.fault.Cut && s.sent >= s.fault.CutAfter {
			err = s.fault.cut(ss.Context())
		}
	}
	return err
}

// faultyStream learns from the first message which fault hits the call.
type faultyStream struct {
	grpc.ServerStream
	e       *Emulator
	method  string
	swallow bool // a status after the call takes its messages' place
	ctx     context.Context
	fault   *Fault
	sent    int
}

// Context carries the fault.
func (s *faultyStream) Context() context.Context {
	if s.ctx != nil {
		return s.ctx
	}
	return s.ServerStream.Context()
}

// RecvMsg receives the request, refuses it if the caller may not make it, and
// runs what a fault does ahead of the call.
func (s *faultyStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || s.fault != nil {
		return err
	}
	if err := s.e.authorize(s.ServerStream.Context(), s.method, m); err != nil {
		return err
	}
	if s.fault = s.e.faults.match(s.method, tableOf(m)); s.fault == nil {
		return nil
	}
	s.ctx = context.WithValue(s.ServerStream.Context(), faultKey{}, s.fault)
	return s.fault.before(s.ctx)
}

// SendMsg sends a message unless a fault has cut the stream.
func (s *faultyStream) SendMsg(m any) error {
	if s.fault == nil {
		return s.ServerStream.SendMsg(m)
	}
	if s.fault.Cut && s.sent >= s.fault.CutAfter {
		return s.fault.cut(s.ServerStream.Context())
	}
	if s.swallow && s.fault.after() != nil {
		return nil
	}
	s.sent++
	return s.ServerStream.SendMsg(m)
}
