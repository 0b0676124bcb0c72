package main

import (
	"encoding/json"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
)

// A bill is an SBOM in the JSON of CycloneDX 1.5. It has no serial number and no time, which
// would differ from build to build.
type bill struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// sbom lists the modules that the linker recorded in the programs, with the sums of go.sum, and
// the standard library.
func sbom(name, version string, programs []*debug.BuildInfo) ([]byte, error) {
	found := map[string]component{}
	for _, p := range programs {
		std := strings.TrimPrefix(p.GoVersion, "go")
		found["stdlib"] = component{Type: "library", Name: "stdlib", Version: std, PURL: "pkg:golang/stdlib@" + std}
		for _, m := range p.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + strings.ToLower(m.Path) + "@" + m.Version}
			if m.Sum != "" {
				c.Properties = []property{{"go:sum", m.Sum}}
			}
			found[c.PURL] = c
		}
	}
	b := bill{Format: "CycloneDX", SpecVersion: "1.5", Version: 1, Metadata: metadata{component{
		Type: "application", Name: name, Version: strings.TrimPrefix(version, "v"), PURL: "pkg:golang/" + module + "@" + version,
	}}}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		b.Components = append(b.Components, found[key])
	}
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}
