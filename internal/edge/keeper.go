package edge

// A keeper looks after the sessions of a worker that a log knows.
type keeper struct{}
