package telemetry

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Problems calls add for each variable of the environment that Open could not obey. The SDK takes the
// default in the place of most wrong values, so that a node would run and nothing would reach its collector.
func Problems(add func(variable, problem string)) {
	switch v := variable("OTEL_SDK_DISABLED"); {
	case strings.EqualFold(v, "true"):
		return // the rest is not read
	case v != "" && !strings.EqualFold(v, "false"):
		add("OTEL_SDK_DISABLED", fmt.Sprintf("want true or false, got %q", v))
	}
	_, err1 := newResource("", "")
	_, err2 := parseSampler(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	for _, err := range []error{err1, err2} {
		if err != nil {
			name, text, _ := strings.Cut(err.Error(), ": ")
			add(name, text)
		}
	}
	for _, name := range numbers {
		if n, err := strconv.Atoi(variable(name)); variable(name) != "" && (err != nil || n <= 0) {
			add(name, fmt.Sprintf("want a whole number above 0, got %q", variable(name)))
		}
	}
	for _, signal := range []string{"TRACES", "METRICS", "LOGS"} {
		signalProblems(signal, add)
	}
}

// numbers are the variables with whole numbers that the SDK reads for exports.
var numbers = []string{
	"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
	"OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BLRP_EXPORT_TIMEOUT", "OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
	"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT",
}

func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// signalProblems checks the variables of one signal. Those of an exporter that it does not use do not matter.
func signalProblems(signal string, add func(variable, problem string)) {
	chosen := "OTEL_" + signal + "_EXPORTER"
	known := []string{"", "otlp", "console", "none"}
	if signal == "METRICS" {
		known = append(known, "prometheus")
	}
	if v := variable(chosen); !slices.Contains(known, v) {
		add(chosen, fmt.Sprintf("want otlp, console or none, got %q", v))
	}
	if v := variable(chosen); !wanted(chosen) || v != "" && v != "otlp" {
		return
	}
	for _, c := range otlpChecks {
		for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_" + c.name, "OTEL_EXPORTER_OTLP_" + c.name} {
			if v := variable(name); v != "" {
				if err := c.check(v); err != nil {
					add(name, err.Error())
				}
				break // the one of the signal wins
			}
		}
	}
}

// otlpChecks are the variables of the exporter otlp, by the last part of their names.
var otlpChecks = []struct {
	name  string
	check func(value string) error
}{
	{"PROTOCOL", oneOf("grpc", "http/protobuf")},
	{"COMPRESSION", oneOf("gzip", "none")},
	{"ENDPOINT", checkEndpoint},
	{"TIMEOUT", func(v string) error {
		if n, err := strconv.Atoi(v); err != nil || n <= 0 {
			return fmt.Errorf("want a number of milliseconds above 0, got %q", v)
		}
		return nil
	}},
	{"HEADERS", func(v string) error {
		for pair := range strings.SplitSeq(v, ",") {
			if name, _, ok := strings.Cut(pair, "="); !ok || strings.TrimSpace(name) == "" {
				return errors.New("want NAME=VALUE, with commas between several") // without the text, which may have a secret
			}
		}
		return nil
	}},
	{"CERTIFICATE", checkReadable},
	{"CLIENT_CERTIFICATE", checkReadable},
	{"CLIENT_KEY", checkReadable},
}

func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("want %s, got %q", strings.Join(words, " or "), v)
		}
		return nil
	}
}

// checkEndpoint checks the address of a collector, which may have a password.
func checkEndpoint(v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("want http://HOST:PORT or https://HOST:PORT")
	}
	return nil
}

func checkReadable(v string) error {
	_, err := os.ReadFile(v)
	return err
}
