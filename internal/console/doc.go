// Package console serves the page on which people look at a deployment: its world, states, clients, nodes
// and events.
//
//	s := console.New(console.Config{Bus: bus, Subjects: subjects, Shards: 64, Space: "demo"})
//	http.Serve(listener, s)
//
// The page comes from the folder console at the root of the repository; the files in assets are what
// `make console` builds from it. The server gives it the answers of nodes to the requests of package inspect,
// and a copy of one space, which it follows as an edge does. So the page shows every state, whatever its
// audience, and adds no client to the space. With Config.Edit the page publishes, kicks clients and drains edges, as far
// as the NATS user may.
package console
