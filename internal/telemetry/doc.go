// Package telemetry lets people and machines look at a node from outside: an
// HTTP server with
//
//	/livez         200 while the process is alive, whatever it is connected to
//	/readyz        200 or 503, and JSON that says what is missing
//	/metrics       Prometheus text
//	/debug/pprof   off unless wanted
//
// Metrics are OpenTelemetry instruments that are read when somebody asks: the
// owner of a counter keeps a plain number and gives a function that returns it,
// so counting costs what adding to a number costs. Names start with dnp.edge,
// dnp.relay or dnp.session, and have UCUM units; the Prometheus name of
// dnp.edge.io with unit By is dnp_edge_io_bytes_total. No metric has an attribute
// with the name of a space, state or client, because there is no bound on those.
//
// Listen opens the port, so that a taken one is found at the start. Run serves.
package telemetry
