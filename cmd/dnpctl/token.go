package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/token"
)

type tokenCommand struct {
	Keygen tokenKeygenCommand `cmd:"" help:"Make a key pair: the private key signs tokens, the public key is for --token-keys."`
	Issue  tokenIssueCommand  `cmd:"" help:"Print a token for a client." example:"dnpctl token issue demo alice --groups red,blue --life 10m"`
}

type tokenKeygenCommand struct {
	JSON bool `name:"json" env:"-" help:"Print a JSON object: private_key and public_key, which are files, and key_id."`

	Out string `default:"token" env:"-" placeholder:"NAME" help:"Write NAME.key, the private key, and NAME.pub, the public key (default token)."`
}

// Run makes two files. It replaces no file, because a lost private key cannot be restored.
func (c *tokenKeygenCommand) Run(context.Context, *slog.Logger) error {
	private, err := token.GenerateKey()
	if err != nil {
		return err
	}
	secret, err1 := token.EncodeKey(private)
	open, err2 := token.EncodePublic(private)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := create(c.Out+".key", secret, 0o600); err != nil {
		return err
	}
	if err := create(c.Out+".pub", open, 0o644); err != nil {
		return err
	}
	return printResult(c.JSON, map[string]string{"private_key": c.Out + ".key", "public_key": c.Out + ".pub", "key_id": token.KeyID(private)},
		fmt.Sprintf("%[1]s.key signs tokens; keep it secret, where they are issued\n%[1]s.pub is for --token-keys of edges; key id %[2]s", c.Out, token.KeyID(private)))
}

func create(name string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

type tokenIssueCommand struct {
	Space  string        `arg:"" placeholder:"SPACE" want:"token" help:"Space that the client joins."`
	Client string        `arg:"" placeholder:"CLIENT" want:"token" help:"Name of the client."`
	Key    string        `default:"token.key" env:"-" placeholder:"FILE" help:"Private key (default token.key)."`
	Groups []string      `env:"-" placeholder:"NAME" help:"Groups of the client at the start."`
	Write  bool          `negatable:"" default:"true" env:"-" help:"Let the client write and make states."`
	JSON   bool          `name:"json" env:"-" help:"Print a JSON object: token, space, client, expires."`
	Life   time.Duration `default:"1h" env:"-" help:"How long the token is valid, and a session with it lasts; at most 24h."`
}

// Problems lists what is wrong with c.
func (c *tokenIssueCommand) Problems() (list config.Problems) {
	list.AddIf(c.Life <= 0 || c.Life > token.LifeMax, "--life", "want more than 0 and at most 24h, got %v", c.Life)
	_, err := c.key()
	list.AddErr("--key", err)
	return list
}

// key reads the private key.
func (c *tokenIssueCommand) key() (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(c.Key)
	if err != nil {
		return nil, err
	}
	key, err := token.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", c.Key, err)
	}
	return key, nil
}

// Run prints a token.
func (c *tokenIssueCommand) Run(context.Context, *slog.Logger) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	expires := time.Now().Add(c.Life)
	issued, err := token.Sign(key, token.Claims{Client: c.Client, Space: c.Space, Groups: c.Groups, Write: c.Write, Expires: expires})
	if err != nil {
		return &config.UsageError{Problem: err.Error()}
	}
	return printResult(c.JSON, map[string]string{"token": issued, "space": c.Space, "client": c.Client, "expires": expires.UTC().Format(time.RFC3339)}, issued)
}
