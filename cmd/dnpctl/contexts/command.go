package contexts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dnprelay/dnprelay/internal/config"
)

// A Command is the command context with its subcommands.
type Command struct {
	Add    addCommand    `cmd:"" help:"Remember a deployment by a name, or change it. The first one becomes the one that commands use." example:"dnpctl context add prod --nats tls://nats.example:4222 --creds prod.creds"`
	Use    useCommand    `cmd:"" help:"Choose the context that commands use."`
	List   listCommand   `cmd:"" help:"List the contexts; * is before the one that commands use. Passwords are not shown."`
	Remove removeCommand `cmd:"" help:"Forget a context."`
}

type addCommand struct {
	Name   string `arg:"" want:"token" help:"Name of the context: letters, digits, _ or -."`
	NATS   string `name:"nats" env:"-" required:"" placeholder:"URL,..." help:"NATS servers."`
	User   string `env:"-" placeholder:"NAME" help:"User for servers whose URL names none."`
	Pass   string `name:"password-file" env:"-" placeholder:"FILE" help:"File with the password of --user; - is standard input. It is copied."`
	Creds  string `env:"-" placeholder:"FILE" help:"NATS credentials file."`
	NKey   string `name:"nkey" env:"-" placeholder:"FILE" help:"File with the seed of a NATS NKey."`
	CA     string `name:"ca" env:"-" placeholder:"FILE" help:"PEM file with the authorities that sign the certificates of the servers."`
	Cert   string `env:"-" placeholder:"FILE" help:"PEM file with the certificate to present to the servers."`
	Key    string `env:"-" placeholder:"FILE" help:"PEM file with the key of --cert."`
	Prefix string `name:"subject-prefix" env:"-" placeholder:"TOKENS" help:"First tokens of every NATS subject, if not dnp.v1."`
}

// Problems lists what is wrong with c.
func (c *addCommand) Problems() (list config.Problems) {
	if (c.User == "") != (c.Pass == "") {
		list.Add("--password-file", "needs --user, and --user needs --password-file")
	}
	return list
}

// Run adds the context.
func (c *addCommand) Run(context.Context, *slog.Logger) error {
	added := Context{URL: c.NATS, User: c.User, SubjectPrefix: c.Prefix}
	if c.Pass != "" {
		password, err := readPassword(c.Pass)
		if err != nil {
			return err
		}
		added.Password = password
	}
	for to, file := range map[*string]string{&added.Creds: c.Creds, &added.NKey: c.NKey, &added.CA: c.CA, &added.Cert: c.Cert, &added.Key: c.Key} {
		if file == "" {
			continue
		}
		absolute, err := filepath.Abs(file) // commands run in other folders
		if err != nil {
			return err
		}
		*to = absolute
	}
	return change(func(f *list) error {
		f.Contexts[c.Name] = added
		if f.Selected == "" {
			f.Selected = c.Name
		}
		return nil
	})
}

// readPassword reads a password from a file, so that no other user of the machine sees it among arguments.
func readPassword(file string) (string, error) {
	if file == "-" {
		file = "/dev/stdin"
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

type useCommand struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run selects the context.
func (c *useCommand) Run(context.Context, *slog.Logger) error {
	return change(func(f *list) error {
		f.Selected = c.Name
		return f.known(c.Name)
	})
}

type removeCommand struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run removes the context.
func (c *removeCommand) Run(context.Context, *slog.Logger) error {
	return change(func(f *list) error {
		err := f.known(c.Name)
		delete(f.Contexts, c.Name)
		if f.Selected == c.Name {
			f.Selected = ""
		}
		return err
	})
}

type listCommand struct {
	JSON bool `name:"json" env:"-" help:"Print one JSON object per context: name, selected, nats_url, nats_user, nats_creds, nats_nkey."`
}

// Run prints the contexts without passwords.
func (c *listCommand) Run(context.Context, *slog.Logger) error {
	f, err := load()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
		x := f.Contexts[name]
		x.Password, x.URL = "", redacted(x.URL)
		if c.JSON {
			line, err := json.Marshal(struct {
				Name     string `json:"name"`
				Selected bool   `json:"selected"`
				Context
			}{name, name == f.Selected, x})
			if err != nil {
				return err
			}
			fmt.Printf("%s\n", line)
			continue
		}
		mark := " "
		if name == f.Selected {
			mark = "*"
		}
		fmt.Fprintf(table, "%s %s\t%s\t%s\n", mark, name, x.URL, x.User+x.Creds+x.NKey)
	}
	return table.Flush()
}

// redacted returns URLs without passwords.
func redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		if u, err := url.Parse(text); err == nil {
			list[i] = u.Redacted()
		}
	}
	return strings.Join(list, ",")
}

// load returns the contexts of this user. Without a folder for them, as in a container, there are none.
func load() (list, error) {
	path, err := location()
	if err != nil {
		return list{}, nil
	}
	return read(path)
}

// change changes the file, unless do returns an error.
func change(do func(f *list) error) error {
	path, err := location()
	if err != nil {
		return err
	}
	f, err := read(path)
	if err == nil {
		err = do(&f)
	}
	if err != nil {
		return err
	}
	return f.write(path)
}

// known returns an error if there is no context with a name.
func (f *list) known(name string) error {
	if _, ok := f.Contexts[name]; ok {
		return nil
	}
	return fmt.Errorf("no context is named %s; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(f.Contexts)), ", "))
}

// Find returns the context with a name, or the selected one if name is empty. ok is false if none is
// selected.
func Find(name string) (c Context, ok bool, err error) {
	f, err := load()
	name = cmp.Or(name, f.Selected)
	if err != nil || name == "" {
		return c, false, err
	}
	return f.Contexts[name], true, f.known(name)
}
