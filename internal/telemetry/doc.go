// Package telemetry shows a node to operators and machines: by an HTTP server with
//
//	/livez         200 while the process is alive, whatever it is connected to
//	/readyz        200 or 503, and JSON that names what is missing
//	/metrics       Prometheus text, or OpenMetrics with exemplars for clients that accept it
//	/debug/pprof   only if Config.Pprof is set
//
// and by OpenTelemetry, which the standard OTEL_* variables switch on: traces of sampled
// updates, metrics, log lines. Without such variables the node sends nothing.
//
// Metrics are OpenTelemetry instruments that read their value when they are asked: the
// owner of a counter keeps a plain number and gives a function that returns it, so that
// counting costs an addition. Names start with dnp.edge, dnp.relay, dnp.session,
// dnp.cluster, dnp.forward, dnp.nats or dnp.telemetry, and have UCUM units; the Prometheus
// name of dnp.edge.io with unit By is dnp_edge_io_bytes_total. No metric has an attribute
// with the name of a space, state or client, because their number has no bound.
//
// A trace follows one update: publish, apply and batch at the relay, replicate and flush
// at the edge. It begins with the traceparent of the game server's message and travels in a
// block of the batch; an update that is not sampled costs a branch. Steps of several sampled
// updates are children of the first and linked to the others.
//
// Open reads the environment. Listen opens the port, so that a port in use is reported at
// the start. Run serves. Close sends what is left. DESIGN.md gives the reasons and costs.
package telemetry
