package sink

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// statusError is a status without its text.
type statusError struct {
	code codes.Code
}

// Error implements error.
func (e *statusError) Error() string { return e.code.String() }

// GRPCStatus lets the error be classified as what it was.
func (e *statusError) GRPCStatus() *status.Status { return status.New(e.code, "") }
