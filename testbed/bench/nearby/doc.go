// Package nearby measures interest by distance: thousands of objects wander about a square, clients wander among
// them, and each client is to see its neighbourhood, well and cheaply.
//
//	figures, err := (&nearby.Runner{Flags: flags, Load: load}).Run(ctx)
//	nearby.Write(os.Stdout, figures)
//
// It starts the processes of package bench. The publisher knows where everything is, so for each client and object it works out by
// itself in which band the object is, and compares that with what the client receives: how old it is, when a crossing of
// a border shows, and what arrives although it is out of sight.
//
// # Without interest
//
// The same objects wander in a second space, where states have no interest and an audience without clients. Windows of both take
// turns. What NATS and the relay do in one and the other is the price that they pay for interest. An edge of its own with
// one client follows the second space, because edges do not follow a space without clients.
//
// # Truth
//
// Positions are half floats, on the wire and in the truth. A band begins at its border and ends a tenth outside, as interest does. The rotation of an object
// changes in each tick, and its first component is the number of the tick, so clients can tell the age of what they see.
package nearby
