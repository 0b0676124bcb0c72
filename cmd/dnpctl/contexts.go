package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dnprelay/dnprelay/subject"
)

// A natsContext is a context of the command nats: how to reach NATS servers. jsm.go has a package that reads it, which links a NATS server.
type natsContext struct {
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
	Creds    string `json:"creds"`
	NKey     string `json:"nkey"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	CA       string `json:"ca"`

	// What dnpctl cannot use.
	Token string `json:"token"`
	NSC   string `json:"nsc"`
	JWT   string `json:"user_jwt"`
	Proxy string `json:"socks_proxy"`
}

// findContext returns the context with a name, or the selected one if name is empty. ok is false if none is selected.
func findContext(name string) (c natsContext, ok bool, err error) {
	home, _ := os.UserHomeDir() // without one, as in a container, there are no contexts
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(home, ".config") // also where os.UserConfigDir returns another one
	}
	dir = filepath.Join(dir, "nats")
	if name == "" {
		selected, err := os.ReadFile(filepath.Join(dir, "context.txt"))
		if name = strings.TrimSpace(string(selected)); err != nil || name == "" {
			return c, false, nil
		}
	}
	data, err := []byte(nil), error(fs.ErrNotExist)
	if subject.ValidToken(strings.ReplaceAll(name, ".", "_")) {
		data, err = os.ReadFile(filepath.Join(dir, "context", name+".json"))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, fmt.Errorf("no context is named %s; `nats context ls` lists them", name)
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	switch {
	case err != nil:
		return c, false, fmt.Errorf("read context %s: %w", name, err)
	case c.Token+c.NSC+c.JWT+c.Proxy != "":
		return c, false, fmt.Errorf("context %s: dnpctl cannot use its token, nsc, user_jwt or socks_proxy", name)
	}
	for _, path := range []*string{&c.Creds, &c.NKey, &c.Cert, &c.Key, &c.CA} {
		if *path = os.ExpandEnv(*path); strings.HasPrefix(*path, "~/") {
			*path = filepath.Join(home, (*path)[2:])
		}
	}
	return c, true, nil
}
