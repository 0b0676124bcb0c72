// Package interest decides what each client is near enough to see.
//
// Objects are somewhere, and each follows a Rule: up to eight bands of distance, 100, 300 and 600
// metres, say. A Sight is what one session sees: its eyes, of which a client may have several, and
// the band of each object around them. The Bander tells only changes: this object came into the
// second band of that sight, that one is beyond all bands.
//
// To drive it: Add, Move and Remove objects of the Grid as states come, change and go; give a Sight
// its eyes with SetEyes, and move them with MoveEye; call Advance when the time that it returned has
// come, and after each call of SetEyes or MoveEye. The package is pure: time comes in, changes go out.
//
// It does not know what a band means, links, states or clients. Nothing of it is stored: whoever
// adds the objects and eyes again gets the bands again.
package interest
