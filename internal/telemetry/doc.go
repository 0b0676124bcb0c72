// Package telemetry lets people and machines look at a node from outside: by an
// HTTP server with
//
//	/livez         200 while the process is alive, whatever it is connected to
//	/readyz        200 or 503, and JSON that says what is missing
//	/metrics       Prometheus text, OpenMetrics with examples for who asks for it
//	/debug/pprof   off unless wanted
//
// and by OpenTelemetry, which the standard OTEL_* variables switch on: traces of
// sampled updates, metrics, log lines. Nothing said, nothing sent.
//
// Metrics are OpenTelemetry instruments that are read when somebody asks: the
// owner of a counter keeps a plain number and gives a function that returns it,
// so counting costs what adding to a number costs. Names start with dnp.edge,
// dnp.relay, dnp.session, dnp.cluster, dnp.nats or dnp.telemetry, and have UCUM units; the
// Prometheus name of dnp.edge.io with unit By is dnp_edge_io_bytes_total. No metric has an
// attribute with the name of a space, state or client, because there is no bound on those.
//
// A trace follows one update: publish, apply and batch at the relay, replicate and flush
// at the edge. It begins with the traceparent of the game server's message and travels in a
// block of the batch; an update that is not sampled costs a branch. Steps of several sampled
// updates are children of the first and linked to the others.
//
// Open reads the environment. Listen opens the port, so that a taken one is found at the
// start. Run serves. Close sends what is left. DESIGN.md says why, and what it costs.
package telemetry
