// Command dashboards writes the Grafana dashboards of dnprelay as JSON:
//
//	go run ./deploy/dashboards deploy/dashboards
//
// They are lists of panels here, and files in the repository that Grafana, the chart and
// the compose file read. `make dashboards` writes the files. A test checks that they are
// current, and internal/systest compares every query with the metrics of real nodes.
package main
