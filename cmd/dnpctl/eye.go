package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/subject"
)

type eyeCommand struct {
	SpaceFlags `set:"space=Space of the client."`

	Client string   `arg:"" help:"Client whose eyes to set; dnpctl who lists them."`
	At     []string `arg:"" optional:"" help:"From where it sees: KEY for the place of a state, KEY#VALUE for one of its values, or a point as 10,0,3. Several are several eyes, of which the nearest counts. None = from nowhere."`
	JSON   bool     `name:"json" env:"-" help:"Print the answer as JSON."`
}

// Problems lists what is wrong with c.
func (c *eyeCommand) Problems() (list config.Problems) {
	if !subject.ValidToken(c.Client) {
		list.Add("CLIENT", "%q is not the name of a client", c.Client)
	}
	for _, at := range c.At {
		if key, _, _ := strings.Cut(at, "#"); parsePoint(at) == nil && !subject.ValidKey(key) {
			list.Add("AT", "want KEY, KEY#VALUE or a point as 10,0,3, got %q", at)
		}
	}
	return list
}

// Run sets the eyes and prints the position of the change.
func (c *eyeCommand) Run(ctx context.Context, _ *slog.Logger) error {
	body, err := json.Marshal(c.op())
	if err != nil {
		return err
	}
	data, err := c.askHolder(ctx, c.subjects().Publish(c.Space, ""), body)
	if err != nil {
		return err
	}
	return printAnswer(data, c.JSON)
}

// An eyeOp is the JSON of the op. At is null for no eye.
type eyeOp struct {
	Op     string `json:"op"`
	Client string `json:"client"`
	At     []any  `json:"at"`
}

func (c *eyeCommand) op() eyeOp {
	o := eyeOp{Op: "eye", Client: c.Client}
	for _, at := range c.At {
		if p := parsePoint(at); p != nil {
			o.At = append(o.At, p)
		} else {
			o.At = append(o.At, at)
		}
	}
	return o
}

// parsePoint returns the numbers of a point; nil if the text is none.
func parsePoint(text string) (p []float64) {
	parts := strings.Split(text, ",")
	if len(parts) != 2 && len(parts) != 3 {
		return nil
	}
	for _, part := range parts {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil || x-x != 0 { // JSON has neither NaN nor infinities
			return nil
		}
		p = append(p, x)
	}
	return p
}
