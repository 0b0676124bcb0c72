package subject

// Headers of messages between clients and game servers.
const (
	HeaderSession  = "Dnp-Session"  // the session of the client
	HeaderNumber   = "Dnp-Number"   // of a reliable message of a client, in its session
	HeaderPrevious = "Dnp-Previous" // number of the message before, plus one: what a consumer's cursor was
	HeaderReliable = "Dnp-Reliable" // "true" or "false"
	HeaderToken    = "Dnp-Token"    // by which a game server names a message to a client
)

// HeaderControl marks a message on a client's subject that is not for the client but a
// command to the edge that serves it.
const (
	HeaderControl   = "Dnp-Control"
	ControlKick     = "kick"      // of the holder: end the client's sessions
	ControlReplaced = "replaced"  // of an edge: end the sessions that began before HeaderBegan
	HeaderBegan     = "Dnp-Began" // when the session HeaderSession began, in Unix microseconds
)
