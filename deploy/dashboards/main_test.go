package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestFiles wants a file for each dashboard, with a graph for each of its panels.
func TestFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "dashboards")
	for range 2 { // the second time the folder is there
		if err := write(folder); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != len(dashboards) {
		t.Fatalf("%d files (%v), want %d", len(files), err, len(dashboards))
	}
	for _, d := range dashboards {
		text, err := os.ReadFile(filepath.Join(folder, d.name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			UID    string
			Panels []struct{ Type string }
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		want, graphs := 0, 0
		for _, r := range d.rows {
			want += len(r.panels)
		}
		for _, p := range got.Panels {
			if p.Type == "timeseries" {
				graphs++
			}
		}
		if got.UID != "dnprelay-"+d.name || graphs != want || want == 0 {
			t.Errorf("%s.json has the identity %q and %d graphs, want %d", d.name, got.UID, graphs, want)
		}
	}
}
