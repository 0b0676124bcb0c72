package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
)

type publishCommand struct {
	SpaceFlags `set:"space=Space of the state."`

	Key    string   `arg:"" optional:"" want:"key" help:"Key of the state."`
	Values []string `arg:"" optional:"" help:"Values. NAME:TYPE=VALUE makes the state with these values, in this order; NAME=VALUE changes values of an existing state. VALUE is a number, text, 1,2,3 for vectors, or null. NAME:TYPE~0.1= sends only changes beyond 0.1, NAME:TYPE?= may be null. Data is base64, or @FILE."`

	Message  *string        `env:"-" placeholder:"TEXT" help:"Message to clients with the link to the state (default: the key)."`
	Describe bool           `env:"-" help:"Make that message tell the key and the names of the values, for clients that read it."`
	Farewell *string        `env:"-" placeholder:"TEXT" help:"Message to each client whose link to the state ends."`
	Access   string         `env:"-" placeholder:"WHO" help:"Which clients may write: read-only, read-write, or their names with commas (default read-only)."`
	Audience []string       `env:"-" placeholder:"WHO" help:"Which clients are offered the state: all, nobody, group=NAME, client=NAME; may be repeated (default all)."`
	TTL      *time.Duration `name:"ttl" env:"-" placeholder:"TIME" help:"Remove the state when nothing was published about it for this time, 1s to 168h; 0s = never (default: as it was, and never for a new state)."`
	Interest string         `env:"-" placeholder:"NAME|JSON" help:"From how far clients see the state: the name of an interest, or JSON as {\"at\":\"pos\",\"bands\":[{\"within\":100}]}; null takes it away. Clients see from their eyes: dnpctl eye."`
	Remove   bool           `env:"-" help:"Remove the state."`
	File     string         `env:"-" short:"f" placeholder:"FILE" help:"Publish the JSON in this file unchanged; - is standard input."`
	JSON     bool           `name:"json" env:"-" help:"Print the answer as JSON."`
}

// Problems lists what is wrong with c.
func (c *publishCommand) Problems() (list config.Problems) {
	switch {
	case c.File != "" && (len(c.Values) > 0 || c.Remove || c.describes()):
		list.Add("--file", "replaces values and other flags, which must be absent")
	case c.Describe && c.Message != nil:
		list.Add("--describe", "replaces --message, which must be absent")
	case c.File != "" && c.File != "-":
		_, err := os.Stat(c.File)
		list.AddErr("--file", err)
	case c.File != "":
	case c.Key == "":
		list.Add("KEY", "is missing, as tower in: dnpctl publish %s tower hp:float32=93.5", c.Space)
	case c.Remove && (len(c.Values) > 0 || c.describes()):
		list.Add("--remove", "conflicts with values and other flags")
	default:
		_, problems := c.text()
		list = append(list, problems...)
	}
	return list
}

// describes reports whether a flag describes the state.
func (c *publishCommand) describes() bool {
	return c.Describe || c.Message != nil || c.Farewell != nil || c.Access != "" || len(c.Audience) > 0 || c.Interest != "" || c.TTL != nil
}

// Run publishes and prints the position of the change.
func (c *publishCommand) Run(ctx context.Context, _ *slog.Logger) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	return c.publish(ctx, c.Key, body, c.JSON)
}

// publish publishes, and prints the answer of the holder.
func (f *SpaceFlags) publish(ctx context.Context, key string, body []byte, asJSON bool) error {
	data, err := f.askHolder(ctx, f.subjects().Publish(f.Space, key), body)
	if err != nil {
		return err
	}
	a, err := payload.ParseAnswer(data)
	if asJSON {
		fmt.Printf("%s\n", data)
	}
	if err != nil || asJSON {
		return err
	}
	note := ""
	if a.Durable != nil && !*a.Durable {
		note = ", not yet durable"
	}
	fmt.Printf("ok, position %d:%d%s\n", a.Epoch, a.Seq, note)
	return nil
}

func (c *publishCommand) body() ([]byte, error) {
	switch {
	case c.File == "-":
		return io.ReadAll(os.Stdin)
	case c.File != "":
		return os.ReadFile(c.File)
	}
	text, problems := c.text()
	if problems != nil {
		return nil, &config.UsageError{Problem: problems[0]}
	}
	return text, nil
}

// text returns what to publish, or every problem with it. The subject has the key.
func (c *publishCommand) text() (text []byte, problems config.Problems) {
	audience, err := parseAudience(c.Audience)
	if err != nil {
		problems = append(problems, err.Error())
	}
	ttl := ttlText(c.TTL, &problems)
	switch {
	case c.Remove:
		return (&payload.Op{Op: "remove"}).Append(nil), problems
	case slices.ContainsFunc(c.Values, isTyped):
		put := payload.Put{Message: escape(c.Message), Describe: c.Describe, Farewell: escape(c.Farewell), Access: parseAccess(c.Access), Audience: audience, Interest: parseInterest(c.Interest), TTL: ttl}
		if put.Values, problems = parseTyped(c.Values, problems); problems == nil {
			text = put.Append(nil, nil)
		}
	case len(c.Values) > 0 && c.describes():
		problems.Add("--message, --describe, --farewell, --access, --audience, --interest and --ttl", "need values with types, as hp:float32=1")
	case len(c.Values) > 0:
		set := payload.Op{Op: "set"}
		set.Sets, problems = parseUntyped(c.Values, problems)
		text = set.Append(nil)
	case audience != nil && !c.Describe && c.Message == nil && c.Farewell == nil && c.Access == "" && c.Interest == "" && c.TTL == nil:
		text = (&payload.Op{Op: "audience", Audience: audience}).Append(nil)
	default:
		problems.Add("NAME:TYPE=VALUE", "is missing, as hp:float32=93.5")
	}
	return text, problems
}

// ttlText returns the JSON form of a time to live; empty if there is none.
func ttlText(ttl *time.Duration, problems *config.Problems) string {
	if ttl == nil {
		return ""
	}
	problems.AddIf(*ttl != 0 && (*ttl < replication.TTLMin || *ttl > replication.TTLMax), "--ttl", "want 1s to 168h, or 0s for none, got %v", *ttl)
	return payload.DurationText(*ttl)
}

// parseAudience returns the JSON form; nil for none.
func parseAudience(words []string) (json.RawMessage, error) {
	if len(words) == 0 {
		return nil, nil
	}
	var groups, clients []string
	for _, w := range words {
		kind, name, _ := strings.Cut(w, "=")
		switch {
		case w == "all", w == "nobody":
			if len(words) > 1 {
				return nil, fmt.Errorf("--audience: all and nobody exclude every other audience")
			}
		case kind == "group" && subject.ValidToken(name):
			groups = append(groups, name)
		case kind == "client" && subject.ValidToken(name):
			clients = append(clients, name)
		default:
			return nil, fmt.Errorf("--audience: want all, nobody, group=NAME or client=NAME, got %q", w)
		}
	}
	return payload.AudienceText(words[0] == "nobody", groups, clients), nil
}

// parseAccess returns the JSON form of a word, or of the clients that may write; nil for none. The relay says what is wrong with them.
func parseAccess(text string) json.RawMessage {
	switch text {
	case "":
		return nil
	case "read-only":
		return payload.AccessText(replication.Access{})
	case "read-write":
		return payload.AccessText(replication.Access{Kind: replication.AccessReadWrite})
	}
	return payload.AccessText(replication.Access{Kind: replication.AccessWriters, Writers: strings.Split(text, ",")})
}

// parseInterest returns the JSON form: an object, null, or a name; nil for none. The relay says what is wrong with it.
func parseInterest(text string) json.RawMessage {
	switch {
	case text == "":
		return nil
	case text == "null" || strings.HasPrefix(text, "{") && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	return quote(text)
}

// escape returns the JSON form of a message. It protects text that begins with a prefix of the JSON payload, except base64:, with
// which arguments may have bytes, too.
func escape(text *string) json.RawMessage {
	switch {
	case text == nil:
		return nil
	case strings.HasPrefix(*text, "text:"):
		return quote("text:" + *text)
	}
	return quote(*text)
}

type eyeCommand struct {
	SpaceFlags `set:"space=Space of the client."`

	Client string   `arg:"" want:"token" help:"Client whose eyes to set; dnpctl who lists them."`
	At     []string `arg:"" optional:"" help:"From where it sees: KEY for the place of a state, KEY#VALUE for one of its values, or a point as 10,0,3. Several are several eyes, of which the nearest counts. None = from nowhere."`
	JSON   bool     `name:"json" env:"-" help:"Print the answer as JSON."`
}

// Problems lists what is wrong with c.
func (c *eyeCommand) Problems() (list config.Problems) {
	for _, at := range c.At {
		_, err := inspect.ParsePlace(at)
		list.AddIf(err != nil, "AT", "want KEY, KEY#VALUE or a point as 10,0,3, got %q", at)
	}
	return list
}

// Run sets the eyes and prints the position of the change.
func (c *eyeCommand) Run(ctx context.Context, _ *slog.Logger) error {
	return c.publish(ctx, "", c.text(), c.JSON)
}

func (c *eyeCommand) text() []byte {
	var eyes []inspect.Place // in JSON null for none
	for _, at := range c.At {
		p, _ := inspect.ParsePlace(at) // Problems has checked it
		eyes = append(eyes, p)
	}
	at, _ := json.Marshal(eyes) // never fails for keys and finite numbers
	return (&payload.Op{Op: "eye", Client: c.Client, At: at}).Append(nil)
}

type kickCommand struct {
	SpaceFlags `set:"space=Space of the client."`

	Client string `arg:"" want:"token" help:"Client whose sessions in the space end; dnpctl clients SPACE lists them. A login service has to refuse a client that must not come back."`
	Reason string `arg:"" optional:"" help:"Why, for game servers: the event left has it. The client is told only that its connection ends."`
	JSON   bool   `name:"json" env:"-" help:"Print the answer as JSON."`
}

// Problems lists what is wrong with c.
func (c *kickCommand) Problems() (list config.Problems) {
	list.AddIf(len(c.Reason) > replication.KickReasonMax, "REASON", "want at most %d bytes, got %d", replication.KickReasonMax, len(c.Reason))
	return list
}

// Run ends the sessions of the client.
func (c *kickCommand) Run(ctx context.Context, _ *slog.Logger) error {
	kick := payload.Op{Op: "kick", Client: c.Client, Reason: c.Reason}
	err := c.publish(ctx, "", kick.Append(nil), c.JSON)
	if errors.Is(err, errRefused) {
		return fmt.Errorf("%w; the users game and admin may kick", err)
	}
	if payload.HasCode(err, replication.CodeUnknownClient) {
		return fmt.Errorf("%w; `dnpctl clients %s` lists those who are", err, c.Space)
	}
	return err
}
