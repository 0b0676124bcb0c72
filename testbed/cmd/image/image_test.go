package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// entries returns the files of a tar, and fails on anything of this machine.
func entries(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s has an owner or a time: %+v", h.Name, h)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = data
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	program, text := filepath.Join(dir, "p"), filepath.Join(dir, "t")
	if err := errors.Join(os.WriteFile(program, []byte("program"), 0o700), os.WriteFile(text, []byte("text"), 0o600)); err != nil {
		t.Fatal(err)
	}
	pack := func(out string, files ...string) []byte {
		img := config{name: "localhost/x:1", entrypoint: []string{"/relay"}, user: "65532:65532", arch: "amd64"}
		if _, err := write(filepath.Join(dir, out), img, files); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, out))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := pack("1.tar", "/relay="+program, "/etc/x/text="+text)
	if err := os.Chtimes(program, time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if second := pack("2.tar", "/etc/x/text="+text, "/relay="+program); !bytes.Equal(first, second) {
		t.Error("the order of files or their times change the archive")
	}

	files := entries(t, first)
	for name, data := range files {
		if sum, ok := bytes.CutPrefix([]byte(name), []byte("blobs/sha256/")); ok && string(sum) != fmt.Sprintf("%x", sha256.Sum256(data)) {
			t.Errorf("%s has another digest", name)
		}
	}
	var docker []struct {
		Config string
		Layers []string
	}
	var index struct{ Manifests []struct{ Digest string } }
	if err := errors.Join(json.Unmarshal(files["manifest.json"], &docker), json.Unmarshal(files["index.json"], &index)); err != nil {
		t.Fatal(err)
	}
	if len(docker) != 1 || files[docker[0].Config] == nil || len(docker[0].Layers) != 1 {
		t.Fatalf("docker's manifest is %+v", docker)
	}
	if len(index.Manifests) != 1 || files["blobs/sha256/"+index.Manifests[0].Digest[len("sha256:"):]] == nil {
		t.Errorf("the index is %+v", index)
	}
	layer := entries(t, files[docker[0].Layers[0]])
	want := []string{"etc/", "etc/x/", "etc/x/text", "relay", "tmp/"}
	if got := slices.Sorted(func(yield func(string) bool) {
		for name := range layer {
			if !yield(name) {
				return
			}
		}
	}); !slices.Equal(got, want) {
		t.Errorf("the layer has %q, want %q", got, want)
	}
}

func TestArchiveErrors(t *testing.T) {
	img := config{name: "x:1"}
	for _, files := range [][]string{{"relay"}, {"relay=x"}, {"/relay=/nonexistent"}} {
		if _, err := write(filepath.Join(t.TempDir(), "x.tar"), img, files); err == nil {
			t.Errorf("%q is packed", files)
		}
	}
}
