//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/bench"
	"github.com/dnprelay/dnprelay/testbed/bench/nearby"
	"github.com/dnprelay/dnprelay/testbed/lab"
)

// benchFlags adds the flags of every benchmark.
func benchFlags(set *flag.FlagSet, f *bench.Flags, window time.Duration, workers int) {
	set.IntVar(&f.Rounds, "rounds", 5, "windows per case, each with what it is compared with; the table has medians")
	set.DurationVar(&f.Window, "window", window, "how long one window takes")
	set.IntVar(&f.Workers, "workers", workers, "workers of each edge")
	set.DurationVar(&f.Tick, "tick", 10*time.Millisecond, "tick of the relay")
	set.DurationVar(&f.Flush, "flush", 5*time.Millisecond, "flush interval of the edges")
}

// wrong explains bad arguments of a scenario.
func (c *common) wrong(err error) error {
	fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name(), err)
	return errUsage
}

// A choice says which cases of package bench to measure.
type choice struct {
	one, model, carriers string
	idle                 int
	quick                bool
}

// chosen reports whether c names cases; otherwise all series are measured.
func (c *choice) chosen() bool { return c.quick || c.one != "" || c.idle > 0 }

// cases returns the cases that c names, and whether they are measured side by side.
func (c *choice) cases() (cases []bench.Case, beside bool, err error) {
	switch {
	case c.idle < 0 || c.idle > 0 && c.one != "":
		return nil, false, errors.New("-idle: want a number of clients, and no -case")
	case c.carriers != "" && c.one == "" && c.idle == 0:
		return nil, false, errors.New("-carrier: needs -case or -idle")
	case c.one == "" && c.idle == 0:
		return bench.Quick(), false, nil
	}
	one := bench.Idle(c.idle)
	carriers, err := bench.ParseCarriers(list(c.carriers))
	if err == nil && c.one != "" {
		one, err = bench.ParseCase(c.one, c.model)
	}
	if err == nil {
		err = one.Validate()
	}
	return bench.ByCarriers(one, carriers), len(carriers) > 1 && c.one != "", err
}

func runBench(ctx context.Context, args []string) error {
	var r bench.Runner
	var which choice
	c := newFlags("bench")
	benchFlags(c.FlagSet, &r.Flags, 1200*time.Millisecond, 1)
	c.BoolVar(&r.Pin, "pin", false, "edges on core 0, everything else on core 1")
	only := c.String("only", "", "only this series: "+strings.Join(lab.Series(), ", "))
	c.BoolVar(&which.quick, "quick", false, "only a few cases, in less than a minute")
	c.StringVar(&which.one, "case", "", "only this case, with every client linked to all states, or to so many: STATES,HZ,CLIENTS,EDGES[,LINKS]")
	c.StringVar(&which.model, "model", "all", "what changes with -case: all values, tenth = every tenth, sine = slowly and filtered by precision")
	c.StringVar(&which.carriers, "carrier", "", "how clients come, with -case or -idle: udp, websocket, webtransport, joined by commas; several are measured side by side")
	c.IntVar(&which.idle, "idle", 0, "only so many clients that are linked to five states of which none changes: what they cost in memory")
	var floods lab.FloodConfig
	flood := c.Bool("flood", false, "only floods of forged requests, logins and closes; they need redis-server")
	redis := c.String("redis", "redis-server", "the program redis-server")
	c.IntVar(&floods.Rate, "flood-rate", 100_000, "forged datagrams per second; half as many with --auth open")
	c.StringVar(&floods.Only, "flood-only", "", "only floods with this in their names, such as token, or callout, one edge")
	profile := c.String("profile", "", "folder for CPU and allocation profiles of the first edge; they cost some of the figures")
	if err := c.Parse(args); err != nil {
		return errUsage
	}
	if err := r.Validate(); err != nil {
		return c.wrong(err)
	}
	cases, beside, err := which.cases()
	if err != nil {
		return c.wrong(err)
	}
	if *flood {
		c.redis = *redis
	}
	if err := c.prepare(); err != nil {
		return err
	}
	defer func() { _ = c.finish(nil) }() // a benchmark writes no logs
	if r.Self, err = os.Executable(); err != nil {
		return err
	}
	r.Bin = c.bin
	if *profile != "" {
		if err := os.MkdirAll(*profile, 0o755); err != nil {
			return err
		}
		r.Watch = lab.Profile(*profile)
	}
	if *flood {
		floods.Bin, floods.NATSConf, floods.Redis, floods.Dir = c.bin, c.natsConf, c.redis, c.dir
		return lab.Flood(ctx, &r, floods, os.Stdout)
	}
	var results []bench.Result
	switch {
	case !which.chosen():
		results, err = lab.Run(ctx, &r, *only)
	case beside:
		results, err = r.Beside(ctx, cases)
	default:
		results, err = r.Cases(ctx, cases)
	}
	err = errors.Join(err, bench.Write(os.Stdout, results), bench.WriteJSON(c.json, results))
	lab.WriteSeries(os.Stdout, results)
	return err
}

func runBenchInterest(ctx context.Context, args []string) error {
	var r nearby.Runner
	c := newFlags("bench-interest")
	benchFlags(c.FlagSet, &r.Flags, 4*time.Second, 2)
	l := &r.Load
	c.IntVar(&l.States, "states", 10_000, "objects that wander about; the first ones are the clients. -states 4000 -clients 200 -field 2530 is a smaller run of the same density")
	c.IntVar(&l.Clients, "clients", 500, "clients; each sees from an object of its own")
	c.IntVar(&l.Hz, "hz", 20, "changes of each object per second")
	c.Float64Var(&l.Side, "field", 4000, "side of the square in which everything is")
	bands := c.String("bands", "100,300:5:4,600:1:16", "bands of the interest, WITHIN[:RATE[:PRECISION]], the nearest first, joined by commas")
	c.BoolVar(&l.AtOnce, "at-once", false, "all objects change at the begin of a tick, and not evenly over it as with twenty game servers")
	svg := c.String("svg", "", "file for a picture: field, clients by the bytes that they receive, bands")
	c.StringVar(&r.Profile, "profile", "", "folder for CPU profiles of the edge, the relay and this program in the first window")
	c.Lookup("seed").DefValue = "1"
	c.seed = 1 // the same ways of the objects in each run
	if err := c.Parse(args); err != nil {
		return errUsage
	}
	l.Seed = c.seed
	var err error
	if l.Bands, err = nearby.ParseBands(list(*bands)); err == nil {
		err = errors.Join(l.Validate(), r.Validate())
	}
	if err != nil {
		return c.wrong(err)
	}
	if err := c.prepare(); err != nil {
		return err
	}
	defer func() { _ = c.finish(nil) }() // a benchmark writes no logs
	r.Bin = c.bin
	figures, err := r.Run(ctx)
	if figures == nil {
		return err
	}
	return errors.Join(err, nearby.Write(os.Stdout, figures), bench.WriteJSON(c.json, figures), figures.WriteSVG(*svg))
}

// benchSend is a baseline in a process of its own: it sends the job of its standard input.
func benchSend(ctx context.Context, _ []string) error { return bench.Send(ctx, os.Stdin, os.Stdout) }
