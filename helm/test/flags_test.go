package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// known returns the flags and the environment variables of a program.
func known(t *testing.T, args ...string) (flags, env map[string]bool) {
	t.Helper()
	bin := os.Getenv("BIN")
	if bin == "" {
		t.Skip("BIN does not name the folder of relay, edge and dnpctl; make chart-test does")
	}
	out, err := exec.Command(filepath.Join(bin, args[0]), append(args[1:], "--help")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	flags, env = map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(?:-\w, )?--(?:\[no-\])?([a-z0-9-]+)`).FindAllStringSubmatch(string(out), -1) {
		flags[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`\$(DNP_[A-Z_]+)`).FindAllStringSubmatch(string(out), -1) {
		env[m[1]] = true
	}
	return flags, env
}

// TestFlags requires that the programs know every flag and variable that the chart renders.
func TestFlags(t *testing.T) {
	for container, program := range map[string][]string{"edge": {"edge", "serve"}, "relay": {"relay", "serve"}, "session": {"dnpctl", "check"}} {
		flags, env := known(t, program...)
		eachValues(t, func(t *testing.T, _ string, all objects) {
			for _, p := range all.pods() {
				for _, c := range p.spec.Containers {
					if c.Name != container {
						continue
					}
					for _, arg := range c.Args {
						name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
						if strings.HasPrefix(arg, "--") && !flags[name] {
							t.Errorf("%s does not know %s", program, arg)
						}
					}
					for _, e := range c.Env {
						if strings.HasPrefix(e.Name, "DNP_") && !env[e.Name] {
							t.Errorf("%s does not know the variable %s", program, e.Name)
						}
					}
				}
			}
		})
	}
}

// TestEveryFlag requires that every flag of the nodes has a value of its own, or is set by
// the chart.
func TestEveryFlag(t *testing.T) {
	chartSets := map[string][]string{
		"edge": {
			"help", "version", "nats-url", "nats-user", "nats-password", "nats-creds", "subject-prefix", "node", "start-timeout", "gossip-bind", "gossip-advertise", "gossip-join", "gossip-key-file",
			"shards", "listen", "auth", "token-keys", "http", "log-level", "log-format", "log-addresses", "http-token", "redis", "forward-listen", "forward-advertise",
			"websocket", "webtransport", "variant", "lludp", "lludp-region", "lludp-public", "tls-cert", "tls-key",
			"pprof",                                         // by extraArgs, because it exposes the process
			"nats-ca", "nats-cert", "nats-key", "nats-nkey", // by extraArgs and extraVolumes; authorities by trustedCA
		},
		"relay": {
			"help", "version", "nats-url", "nats-user", "nats-password", "nats-creds", "subject-prefix", "node", "start-timeout", "gossip-bind", "gossip-advertise", "gossip-join", "gossip-key-file",
			"shards", "http", "log-level", "log-format", "log-addresses", "http-token", "pprof", "nats-ca", "nats-cert", "nats-key", "nats-nkey",
		},
	}
	for component, sets := range chartSets {
		flags, _ := known(t, component, "serve")
		values := configValues(t, component)
		for flag := range flags {
			if !slices.Contains(sets, flag) && !slices.Contains(values, flag) {
				t.Errorf("--%s of %s cannot be set: add it to %s.config in values.yaml and values.schema.json", flag, component, component)
			}
		}
		for _, v := range values {
			if !flags[v] {
				t.Errorf("%s.config has a value for --%s, which %s does not know", component, v, component)
			}
		}
	}
}

// configValues returns the flags for which the schema has values.
func configValues(t *testing.T, component string) (flags []string) {
	t.Helper()
	text, err := os.ReadFile(chart + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Properties map[string]struct {
			Properties map[string]struct{ Properties map[string]any }
		}
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	for name := range s.Properties[component].Properties["config"].Properties {
		var flag strings.Builder
		for _, r := range name {
			if unicode.IsUpper(r) {
				flag.WriteByte('-')
			}
			flag.WriteRune(unicode.ToLower(r))
		}
		flags = append(flags, flag.String())
	}
	return flags
}

// TestDrainDefaults requires that the chart computes grace periods from the defaults of the
// programs.
func TestDrainDefaults(t *testing.T) {
	for component, want := range map[string]map[string]string{
		"edge": {"drain-timeout": "55s", "drain-linger": "3s"}, "relay": {"drain-timeout": "10s"},
	} {
		flags, _ := known(t, component, "serve")
		out, err := exec.Command(filepath.Join(os.Getenv("BIN"), component), "serve", "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		for flag, value := range want {
			if flags[flag] && !strings.Contains(string(out), "--"+flag+"="+value) {
				t.Errorf("--%s of %s does not default to %s, as the chart assumes", flag, component, value)
			}
		}
	}
}
