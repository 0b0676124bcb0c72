package subject

// HeaderControl marks a message to a client's subject that is not for the client
// but a word of the holder to its edge.
const (
	HeaderControl = "Dnp-Control"
	ControlKick   = "kick" // end the client's sessions
)
