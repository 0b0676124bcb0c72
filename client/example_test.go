package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/edgetest"
)

// A program that does one thing after the other waits with Await, Until and Flush.
func ExampleDial() {
	edge, stop, err := edgetest.Run(edgetest.Config{Describe: true}) // in place of an edge
	must(err)
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.Dial(ctx, "udp://"+edge.String(), client.Config{
		Message: func(_ *client.Client, m client.Message) { fmt.Printf("message %q\n", m.Data) },
	})
	must(err)
	defer c.Close()

	tower, err := c.Await(ctx, "tower")
	must(err)
	must(tower.Set("hp", 93.5))
	fmt.Println("hp", tower.Value("hp"))
	fmt.Println(tower.Set("hp", "high"))

	must(c.Send([]byte("remove"))) // this edge answers with a farewell and the end of the state
	must(c.Until(ctx, func() bool { return !tower.Linked() }))
	// Output:
	// hp 93.5
	// client: state "tower", value 0: want float32, got a string
	// message "tower is gone"
}

// A state of the client is a state of the space while the client is connected.
func ExampleClient_Offer() {
	wrote := make(chan edgetest.Write, 100)
	edge, stop, err := edgetest.Run(edgetest.Config{Wrote: wrote})
	must(err)
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, "udp://"+edge.String(), client.Config{})
	must(err)
	defer c.Close()

	me, err := c.Offer("me",
		client.Field{Name: "hp", Type: "uint16", Value: 100},
		client.Field{Name: "pos", Type: "vector2f32"})
	must(err)
	must(c.Until(ctx, me.Linked))
	must(me.Set("hp", 99))
	must(me.Set("pos", [2]float64{1, 2}))
	fmt.Println(me.Value("hp"), me.Value("pos"))
	for w := range wrote { // what the edge receives
		if w.Index == 0 && w.Value[0] == 99 {
			fmt.Println("the edge has hp", w.Value[0])
			break
		}
	}
	// Output:
	// 99 [1 2]
	// the edge has hp 99
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
