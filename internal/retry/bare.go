package retry

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bare returns a status as an error without its text, which may quote what it is about.
// It is classified as the status is.
func Bare(code codes.Code) error { return bare(code) }

type bare codes.Code

// Error implements error.
func (b bare) Error() string { return codes.Code(b).String() }

// GRPCStatus lets the error be classified.
func (b bare) GRPCStatus() *status.Status { return status.New(codes.Code(b), "") }
