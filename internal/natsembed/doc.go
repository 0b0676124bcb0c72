// Package natsembed runs a NATS server inside this process, so that
// `relay dev` and tests need nothing else on the machine.
//
//	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:4222"})
//	...
//	defer srv.Shutdown()
//
// It has JetStream on disk and, given Mappings, brings publishes to the shard of
// their space, as every server of a real deployment has to be configured to do.
package natsembed
