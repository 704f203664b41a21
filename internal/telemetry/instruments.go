package telemetry

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// Instruments makes instruments and keeps what goes wrong until the last is made.
type Instruments struct {
	metric.Meter
	errs []error
}

// Counter makes a counter.
func (i *Instruments) Counter(name, unit, what string) metric.Int64Counter {
	c, err := i.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	i.Note(err)
	return c
}

// Gauge makes a gauge.
func (i *Instruments) Gauge(name, unit, what string) metric.Int64Gauge {
	g, err := i.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	i.Note(err)
	return g
}

// UpDownCounter makes a counter that may fall.
func (i *Instruments) UpDownCounter(name, unit, what string) metric.Int64UpDownCounter {
	c, err := i.Meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	i.Note(err)
	return c
}

// Note keeps the error of an instrument that was made elsewhere, if it has one.
func (i *Instruments) Note(err error) { i.errs = append(i.errs, err) }

// Err returns what has gone wrong so far; function names whose instruments these are.
func (i *Instruments) Err(function string) error {
	if err := errors.Join(i.errs...); err != nil {
		return fmt.Errorf("making the instruments of %s: %w", function, err)
	}
	return nil
}

// Add counts n, unless it is 0: what has counted nothing has no series.
func Add(ctx context.Context, c metric.Int64Counter, n int64, options ...metric.AddOption) {
	if n > 0 {
		c.Add(ctx, n, options...)
	}
}
