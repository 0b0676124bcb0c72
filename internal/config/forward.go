package config

// Forward are the flags about datagrams of clients that other edges serve.
type Forward struct {
	ForwardListen    string `default:":7947" placeholder:"[ADDRESS]:PORT" help:"UDP, where datagrams of clients come that another edge got; without an address on all, IPv4 and IPv6; port 0 = any free one. Needs --session-durability log, --gossip-join and --gossip-key-file, else nothing is forwarded."`
	ForwardAdvertise string `placeholder:"ADDRESS[:PORT]" help:"Address at which the other edges reach --forward-listen (default: its own, or else that of gossip)."`
}

// Problems lists what is wrong with f.
func (f *Forward) Problems() (list Problems) {
	list.gossipBind("--forward-listen", f.ForwardListen)
	list.gossipAdvertise("--forward-advertise", f.ForwardAdvertise)
	return list
}
