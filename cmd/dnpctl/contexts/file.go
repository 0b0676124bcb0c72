// Package contexts has names for deployments: a file of the user with the NATS servers and
// credentials of each, so that they need not be typed.
//
//	f, err := contexts.Read(path)   // contexts.Path() is where dnpctl looks
//	c, ok := f.Contexts["prod"]
//
// The file may have passwords, so only its owner may read it.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// A File is what the file has.
type File struct {
	Selected string             `json:"selected,omitempty"` // used where no other is named
	Contexts map[string]Context `json:"contexts"`
}

// Bounds of a file.
const (
	bytesMax    = 1 << 20
	contextsMax = 1000
)

// Path returns where the file of this user is.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder for contexts: %w", err)
	}
	return filepath.Join(dir, "dnprelay", "contexts.json"), nil
}

// Read reads a file. One that does not exist is empty.
func Read(path string) (f File, err error) {
	f.Contexts = make(map[string]Context)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("read contexts: %w", err)
	}
	defer file.Close() // it is only read
	info, err := file.Stat()
	if err != nil {
		return f, fmt.Errorf("read contexts: %w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return f, fmt.Errorf("others may read or change %s, which may have passwords: chmod 600 %[1]s", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, bytesMax+1))
	switch {
	case err != nil:
		return f, fmt.Errorf("read contexts: %w", err)
	case len(data) > bytesMax:
		return f, fmt.Errorf("read contexts: %s is longer than 1 MiB", path)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("read contexts: %s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = make(map[string]Context)
	}
	return f, nil
}

// Write replaces a file as a whole, or leaves it as it is. Only the owner may read it.
func (f File) Write(path string) error {
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
