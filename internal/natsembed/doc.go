// Package natsembed runs a NATS server inside this process, so that `relay dev` and tests need no other
// program on the machine.
//
//	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:4222"})
//	...
//	defer srv.Shutdown()
//
// The server has JetStream on disk. With Mappings it maps publishes to the shard of their space, as every
// server of a real deployment must be configured to do.
package natsembed
