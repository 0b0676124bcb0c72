// Command dashboards writes the Grafana dashboards of dnprelay as JSON:
//
//	go run ./deploy/dashboards deploy/dashboards
//
// They are lists of panels here and files in the repository, which Grafana, the chart
// and the compose file read. `make dashboards` writes the files; a test says when they are
// not what this program writes, and internal/systest compares every query with what nodes
// really show.
package main
