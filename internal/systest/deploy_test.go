package systest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/buildtest"
	"go.yaml.in/yaml/v3"
)

// A composeService is the checked part of a service of deploy/compose.yaml.
type composeService struct {
	Image       string
	Entrypoint  []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Secrets     []string
	DependsOn   []string `yaml:"depends_on"`
}

type composeFile struct {
	Services map[string]composeService
	Secrets  map[string]struct{ File string }
	Volumes  map[string]any
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(deploy + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// readCompose reads deploy/compose.yaml and the services that deploy/compose.watch.yaml adds.
func readCompose(t *testing.T) *composeFile {
	t.Helper()
	var c, watch composeFile
	readYAML(t, "compose.yaml", &c)
	readYAML(t, "compose.watch.yaml", &watch)
	for name, s := range watch.Services {
		if _, twice := c.Services[name]; twice {
			t.Errorf("%s is in both files", name)
		}
		c.Services[name] = s
	}
	return &c
}

// TestCompose starts relays and edges with the arguments and the environment of
// deploy/compose.yaml. They must lack nothing but NATS.
func TestCompose(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	for _, name := range []string{"nats-1", "nats-2", "nats-3", "redis", "relay-1", "relay-2", "edge-1", "edge-2", "prometheus", "grafana", "collector"} {
		if c.Services[name].Image == "" {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range c.Services {
		checkComposeFiles(t, name, s, c)
		checkRegistry(t, s.Image)
		role, _, _ := strings.Cut(name, "-")
		switch role {
		case "relay", "edge":
			t.Run(name, func(t *testing.T) { runComposeNode(t, role, s) })
		}
	}
}

// madeDashboards is the folder that `make dashboards` makes, seen from deploy.
const madeDashboards = "../helm/relay/files/dashboards"

// checkComposeFiles wants every file, volume, secret and service that a service names.
func checkComposeFiles(t *testing.T, name string, s composeService, c *composeFile) {
	for _, v := range s.Volumes {
		from, _, _ := strings.Cut(v, ":")
		_, declared := c.Volumes[from]
		if from == madeDashboards {
			continue
		}
		if _, err := os.Stat(deploy + from); err != nil && !declared {
			t.Errorf("%s mounts %s, which is neither a file nor a volume", name, from)
		}
	}
	for _, secret := range s.Secrets {
		if _, err := os.Stat(deploy + c.Secrets[secret].File); err != nil {
			t.Errorf("%s has the secret %s: %v", name, secret, err)
		}
	}
	for _, other := range s.DependsOn {
		if _, ok := c.Services[other]; !ok {
			t.Errorf("%s depends on %s", name, other)
		}
	}
	for _, p := range s.Ports {
		if !strings.HasPrefix(p, "127.0.0.1:") {
			t.Errorf("%s opens %s beyond loopback", name, p)
		}
	}
}

// checkRegistry wants an image with its registry. Docker has a default, but podman refuses a
// short name unless it is told where to search.
func checkRegistry(t *testing.T, image string) {
	t.Helper()
	_, name, variable := strings.Cut(image, ":-") // ${NAME:-image}
	if !variable {
		name = image
	}
	registry, _, ok := strings.Cut(name, "/")
	if !ok || !strings.Contains(registry, ".") {
		t.Errorf("the image %s names no registry", image)
	}
}

// TestDockerfile wants base images with their registry. The target for programs that were built
// outside must start like the one that builds them.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile(deploy + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var started [][]string // per stage from scratch: the user, the program and the port
	scratch := false
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "FROM":
			if scratch = words[1] == "scratch"; scratch {
				started = append(started, nil)
			} else {
				checkRegistry(t, words[1])
			}
		case "USER", "ENV", "EXPOSE", "ENTRYPOINT":
			if scratch {
				last := len(started) - 1
				started[last] = append(started[last], strings.Join(words, " "))
			}
		}
	}
	if len(started) != 2 || !slices.Equal(started[0], started[1]) || !slices.Contains(started[0], "USER 65532:65532") {
		t.Errorf("the images are started as %q", started)
	}
}

func runComposeNode(t *testing.T, role string, s composeService) {
	if s.Entrypoint[0] != "/"+role {
		t.Fatalf("the program is %s", s.Entrypoint[0])
	}
	program := buildtest.Program(t, role)
	help, err := exec.Command(program, "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(slices.Clone(s.Entrypoint[1:]), "--start-timeout", "10ms")...)
	for name, value := range s.Environment {
		switch {
		case !strings.HasPrefix(name, "DNP_"):
			continue
		case !strings.Contains(string(help), "$"+name):
			t.Errorf("%s has no variable %s", role, name)
		}
		switch name {
		case "DNP_NATS_URL":
			value = "nats://127.0.0.1:1"
		case "DNP_HTTP":
			value = "127.0.0.1:0" // another program may have the port
		case "DNP_GOSSIP_KEY_FILE":
			value = deploy + "compose/gossip.key"
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	startCommand(t, cmd).ends(1, "gave up")
}

// TestComposePrometheus wants Prometheus to scrape every node at the address of its metrics.
func TestComposePrometheus(t *testing.T) {
	c := readCompose(t)
	var p struct {
		ScrapeConfigs []struct {
			JobName       string                       `yaml:"job_name"`
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "compose/prometheus.yaml", &p)
	var want, got []string
	for name, s := range c.Services {
		if http, ok := s.Environment["DNP_HTTP"]; ok {
			want = append(want, name+strings.TrimPrefix(http, "0.0.0.0"))
		}
	}
	for _, job := range p.ScrapeConfigs {
		for _, static := range job.StaticConfigs {
			got = append(got, static.Targets...)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) != 4 {
		t.Errorf("Prometheus scrapes %v, want %v", got, want)
	}
	for _, file := range []string{"compose/grafana.yaml", "compose/dashboards.yaml", "compose/collector.yaml"} {
		var any map[string]any
		readYAML(t, file, &any)
	}
}

// fakeGo stands for the go command. The program that it builds does nothing and succeeds.
const fakeGo = `#!/bin/sh
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\n' >"$2"
chmod +x "$2"
`

// TestSimScript wants a run that simulated less than it was told to fail.
func TestSimScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	script, err := os.ReadFile("../../scripts/sim")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"scripts/sim": string(script), "go": fakeGo, "internal/systest/x": "", "sessionlog/x": ""} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string // SECONDS and ROUNDS
		ok   bool
		want string // part of its output
	}{
		{"600 100", true, "100 rounds of chaos"},
		{"600 120", true, "150 rounds of chaos"},
		{"0", true, ""},
		{"0 100", false, "sim: 0 s were over after 0 of 100 rounds"},
	} {
		run := exec.Command(bash, append([]string{filepath.Join(dir, "scripts/sim")}, strings.Fields(c.args)...)...)
		run.Env = append(os.Environ(), "GO="+filepath.Join(dir, "go"), "SEED=1")
		out, err := run.CombinedOutput()
		if (err == nil) != c.ok || !strings.Contains(string(out), c.want) {
			t.Errorf("scripts/sim %s: %v, %q; want success %v, and %q", c.args, err, out, c.ok, c.want)
		}
	}
}

// TestSecurityPage wants every test, make target and file that SECURITY.md names to exist.
func TestSecurityPage(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{} // folders by test
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(text, -1) {
			folder, _ := filepath.Rel(root, filepath.Dir(path))
			tests[string(m[1])] += " " + folder + " "
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for line := range strings.SplitSeq(string(page), "\n") {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)`").FindAllStringSubmatch(line, -1) {
			named++
			if !known(tests, m[1], m[2] != "") {
				t.Errorf("SECURITY.md names %s, which does not exist", m[1])
			}
		}
		for _, m := range regexp.MustCompile("`(Test\\w+)` in ([a-z/]+[a-z])").FindAllStringSubmatch(line, -1) {
			if !strings.Contains(tests[m[1]], " "+m[2]+" ") {
				t.Errorf("SECURITY.md says that %s is in %s; it is in%s", m[1], m[2], tests[m[1]])
			}
		}
		for _, m := range regexp.MustCompile("`make ([a-z-]+)").FindAllStringSubmatch(line, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("SECURITY.md names make %s, which does not exist", m[1])
			}
		}
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && len(cells) == 3 && strings.Contains(string(page), "proved by") &&
			!strings.Contains(line, "threat |") && !strings.Contains(cells[2], "`") && !strings.Contains(cells[2], "/") && !strings.Contains(line, "byte") {
			t.Errorf("a threat without a proof: %s", line)
		}
	}
	if named < 40 {
		t.Errorf("SECURITY.md names %d tests", named)
	}
}

// known reports whether a test has this name, or begins with it.
func known(tests map[string]string, name string, begin bool) bool {
	if tests[name] != "" || !begin {
		return tests[name] != ""
	}
	for t := range tests {
		if strings.HasPrefix(t, name) {
			return true
		}
	}
	return false
}
