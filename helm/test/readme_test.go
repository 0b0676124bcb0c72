package test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestReadmeValues renders the chart with each block of values in its README.md, which are made to be copied.
func TestReadmeValues(t *testing.T) {
	page, err := os.ReadFile(chart + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 3 {
		t.Errorf("README.md has %d blocks of values, want 3", len(blocks))
	}
	for _, b := range blocks {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, b[1], 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := render(t, "--set", "edge.auth.mode=callout", "-f", file)
		if err != nil {
			t.Errorf("the chart refuses\n%s\n%v", b[1], err)
			continue
		}
		if !all.has("Service", webName) {
			t.Errorf("browsers have no service with\n%s", b[1])
		}
	}
}
