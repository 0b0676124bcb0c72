package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards FOLDER")
		os.Exit(2)
	}
	for _, d := range dashboards {
		if err := os.WriteFile(filepath.Join(os.Args[1], d.file()), d.encode(), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "dashboards:", err)
			os.Exit(1)
		}
	}
}

func (d dashboard) file() string { return d.name + ".json" }

// encode returns the dashboard in the form that Grafana imports.
func (d dashboard) encode() []byte {
	b, err := json.MarshalIndent(d.model(), "", " ")
	if err != nil {
		panic(err) // cannot happen: it has strings, numbers and lists only
	}
	return append(b, '\n')
}
