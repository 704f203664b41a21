package telemetry

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// exportEvery is how often metrics are sent; OTEL_METRIC_EXPORT_INTERVAL may make it
// longer, not shorter.
const exportEvery = 10 * time.Second

// Meters is where instruments are made, and what sends them.
type Meters struct {
	metric.MeterProvider
	shutdown func(context.Context) error
}

// Settings are what the standard OTEL_* variables say of metrics. The exporter itself reads
// the endpoint and its headers.
// Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
type Settings struct {
	// Export is set if metrics are sent at all.
	Export bool
	// Every is how often they are sent.
	Every time.Duration
}

// ReadSettings reads the variables with get: metrics are sent over OTLP (http/protobuf) if
// OTEL_METRICS_EXPORTER is "otlp" or an OTLP endpoint is set. The error names the variable
// that asks for something else.
func ReadSettings(get func(string) string) (Settings, error) {
	export, err := wantsMetrics(get)
	return Settings{Export: export, Every: interval(get)}, err
}

// NewMeters returns what the settings ask for. service is the service's name unless
// OTEL_SERVICE_NAME says another. Failed exports are logged. The caller must Shutdown.
func NewMeters(ctx context.Context, settings Settings, service string, logger *slog.Logger) (*Meters, error) {
	if !settings.Export {
		return &Meters{noop.NewMeterProvider(), func(context.Context) error { return nil }}, nil
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("setting up the export of metrics: %w", err)
	}
	about, err := describe(ctx, service)
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.Warn("metrics are not exported", "error", err)
	}))
	provider := sdk.NewMeterProvider(sdk.WithResource(about),
		sdk.WithReader(sdk.NewPeriodicReader(exporter, sdk.WithInterval(settings.Every))))
	return &Meters{provider, provider.Shutdown}, nil
}

// Shutdown sends what was not sent yet and ends the export.
func (m *Meters) Shutdown(ctx context.Context) error {
	if err := m.shutdown(ctx); err != nil {
		return fmt.Errorf("sending the last metrics: %w", err)
	}
	return nil
}

// wantsMetrics reads whether metrics are exported at all.
func wantsMetrics(get func(string) string) (bool, error) {
	endpoint := get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") + get("OTEL_EXPORTER_OTLP_ENDPOINT")
	exporter := get("OTEL_METRICS_EXPORTER")
	switch {
	case get("OTEL_SDK_DISABLED") == "true" || exporter == "none" || exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_METRICS_EXPORTER=%s: this program knows otlp and none", exporter)
	}
	protocol := get("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL")
	if protocol == "" {
		protocol = get("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: this program speaks http/protobuf", protocol)
	}
	return true, nil
}

// describe says who sends. Instances of one service need names of their own, or their
// counters overwrite each other.
func describe(ctx context.Context, service string) (*resource.Resource, error) {
	out, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.instance.id", rand.Text())),
		resource.WithFromEnv(), // the last one wins
	)
	if err != nil {
		return nil, fmt.Errorf("reading OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return out, nil
}

func interval(get func(string) string) time.Duration {
	ms, err := strconv.Atoi(get("OTEL_METRIC_EXPORT_INTERVAL"))
	if err != nil {
		return exportEvery
	}
	return max(exportEvery, time.Duration(ms)*time.Millisecond)
}
