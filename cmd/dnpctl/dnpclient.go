package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/config"
)

// DNPFlags are the flags of commands that act as a game client.
type DNPFlags struct {
	Profile string        `default:"denetwork" env:"-" help:"Profile of the edge: denetwork or spec."`
	Token   string        `env:"DNP_TOKEN" placeholder:"TOKEN|@FILE" help:"Token to log in with, or a file with it, as @FILE."`
	Timeout time.Duration `default:"5s" env:"-" help:"How long to wait for the connection, and for the result."`

	CertificateHash []string `env:"-" placeholder:"HEX" help:"SHA-256 of a certificate to trust with wss:// and wt://, in place of the authorities of the system, as /dnp/info of an edge tells it; may be repeated."`
}

// Problems lists what is wrong with f.
func (f *DNPFlags) Problems() (list config.Problems) {
	if _, ok := wire.ParseProfile(f.Profile); !ok {
		list.Add("--profile", "want denetwork or spec, got %q", f.Profile)
	}
	if f.Timeout <= 0 {
		list.Add("--timeout", "want more than 0, got %v", f.Timeout)
	}
	if _, err := f.token(); err != nil {
		list.Add("--token", "%v", err)
	}
	for _, hash := range f.CertificateHash {
		if b, err := hex.DecodeString(hash); err != nil || len(b) != sha256.Size {
			list.Add("--certificate-hash", "want %d bytes in hex, got %q", sha256.Size, hash)
		}
	}
	return list
}

// dial connects to the edge at HOST:PORT or a URL, with the events of cfg.
func (f *DNPFlags) dial(ctx context.Context, address string, cfg client.Config) (*client.Client, error) {
	token, err := f.token()
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	cfg.Profile, _ = wire.ParseProfile(f.Profile) // Problems has checked it
	cfg.Token, cfg.Timeout, cfg.StatesMax = token, f.Timeout, dnp.LinksPossible
	cfg.CertificateHashes = f.CertificateHash
	if !strings.Contains(address, "://") {
		address = "udp://" + address
	}
	c, err := client.Dial(ctx, address, cfg)
	if end, ok := errors.AsType[*client.EndError](err); ok && end.Reason == client.Timeout && !end.Made {
		return nil, fmt.Errorf("%w; is `relay dev` or `edge serve` running there?", err)
	}
	return c, err
}

// token returns the token to log in with; empty if there is none.
func (f *DNPFlags) token() (string, error) {
	token := f.Token
	if file, ok := strings.CutPrefix(f.Token, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		token = strings.TrimSpace(string(text))
	}
	if len(token) > client.TokenMax {
		return "", fmt.Errorf("has %d bytes, at most %d", len(token), client.TokenMax)
	}
	return token, nil
}

// stay waits for a while, or until the connection ends, which is an error, or ctx does, which is none.
func stay(ctx context.Context, c *client.Client, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-c.Done():
		return c.Err()
	}
	return nil
}

// named returns how lines show a value of a state: by name, if the link message tells it.
func named(s state, index int) string { return cmp.Or(s.Name(index), fmt.Sprint(index)) }
