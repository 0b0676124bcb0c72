// Package contexts has names for deployments: a file of the user with the NATS servers and
// credentials of each, so that they need not be typed.
//
//	c, ok, err := contexts.Find("prod") // or "" for the one that the user selected
//
// The file may have passwords, so only its owner may read it. Command is how the user changes it.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// A Context is how to reach a deployment. The fields are those of the flags --nats-… with the same
// names.
type Context struct {
	URL           string `json:"nats_url"`
	User          string `json:"nats_user,omitempty"`
	Password      string `json:"nats_password,omitempty"`
	Creds         string `json:"nats_creds,omitempty"`
	NKey          string `json:"nats_nkey,omitempty"`
	CA            string `json:"nats_ca,omitempty"`
	Cert          string `json:"nats_cert,omitempty"`
	Key           string `json:"nats_key,omitempty"`
	SubjectPrefix string `json:"subject_prefix,omitempty"`
}

// A list is what the file has.
type list struct {
	Selected string             `json:"selected,omitempty"` // used where no other is named
	Contexts map[string]Context `json:"contexts"`
}

// Bounds of a file.
const (
	bytesMax    = 1 << 20
	contextsMax = 1000
)

// location returns where the file of this user is.
func location() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder for contexts: %w", err)
	}
	return filepath.Join(dir, "dnprelay", "contexts.json"), nil
}

// read reads a file. One that does not exist is empty.
func read(path string) (f list, err error) {
	f.Contexts = make(map[string]Context)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return f, fmt.Errorf("read contexts: %w", err)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return f, fmt.Errorf("others may read or change %s, which may have passwords: chmod 600 %[1]s", path)
	case info.Size() > bytesMax:
		return f, fmt.Errorf("read contexts: %s is longer than 1 MiB", path)
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		return f, fmt.Errorf("read contexts: %s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = make(map[string]Context)
	}
	return f, nil
}

// write replaces a file as a whole, or leaves it as it is. Only the owner may read it.
func (f list) write(path string) error {
	if len(f.Contexts) > contextsMax {
		return fmt.Errorf("write contexts: more than %d", contextsMax)
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = replace(path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	return nil
}

func replace(path string, data []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), ".contexts-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(next.Name()))
	}
	return err
}
