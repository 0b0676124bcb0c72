// Command dashboards writes the Grafana dashboards of dnprelay as JSON:
//
//	go run ./deploy/dashboards helm/relay/files/dashboards
//
// They are lists of panels here, and no files of the repository: `make dashboards` writes those that Grafana, the chart and
// the compose file read. internal/systest compares every query with the metrics of real nodes.
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
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

// write writes the dashboards into a folder, which it makes.
func write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, d := range dashboards {
		if err := os.WriteFile(filepath.Join(folder, d.file()), d.encode(), 0o644); err != nil {
			return err
		}
	}
	return nil
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

// A dashboard is rows of panels.
type dashboard struct {
	name, title string
	of          string // series whose nodes the reader can choose
	rows        []row
}

type row struct {
	title  string
	panels []panel
}

// A panel is one graph with a few queries.
type panel struct {
	title, help string
	unit        string // as Grafana names it
	queries     []query
	exemplars   bool // show traces as points
}

// A query is PromQL, with the name of its lines.
type query struct{ expr, legend string }

// object is a JSON object.
type object = map[string]any

// Grafana has a grid of 24 columns; three panels fill a row.
const (
	panelWidth  = 8
	panelHeight = 8
)

// source is the Prometheus that the reader chooses.
var source = object{"type": "prometheus", "uid": "${datasource}"}

func (d dashboard) model() object {
	var panels []object
	id, y := 0, 0
	for _, r := range d.rows {
		id++
		panels = append(panels, object{
			"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []object{},
			"gridPos": object{"h": 1, "w": 24, "x": 0, "y": y},
		})
		y++
		for i, p := range r.panels {
			id++
			panels = append(panels, p.model(id, i%3*panelWidth, y+i/3*panelHeight))
		}
		y += (len(r.panels) + 2) / 3 * panelHeight
	}
	return object{
		"uid": "dnprelay-" + d.name, "title": d.title, "tags": []string{"dnprelay"}, "schemaVersion": 39, "editable": true,
		"refresh": "10s", "time": object{"from": "now-30m", "to": "now"}, "timezone": "browser", "graphTooltip": 1,
		"templating": object{"list": d.variables()},
		"links":      []object{{"type": "dashboards", "tags": []string{"dnprelay"}, "title": "dnprelay", "asDropdown": true}},
		"panels":     panels,
	}
}

// variables returns the choices at the top of the dashboard.
func (d dashboard) variables() []object {
	choice := func(name, label string) object {
		q := fmt.Sprintf(`label_values(%s, %s)`, d.of, label)
		return object{
			"name": name, "type": "query", "datasource": source, "query": object{"query": q, "refId": name}, "definition": q,
			"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		}
	}
	return []object{
		{"name": "datasource", "type": "datasource", "query": "prometheus"},
		choice("job", "job"), choice("instance", "instance"),
	}
}

func (p panel) model(id, x, y int) object {
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend, "exemplar": p.exemplars,
		})
	}
	return object{
		"id": id, "type": "timeseries", "title": p.title, "description": p.help, "datasource": source, "targets": targets,
		"gridPos":     object{"h": panelHeight, "w": panelWidth, "x": x, "y": y},
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0, "custom": object{"fillOpacity": 10, "showPoints": "never"}}, "overrides": []object{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}},
	}
}
