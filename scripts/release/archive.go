package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// written is the time of every file in an archive: the first that zip can express, because the
// time of a build would make each archive another one.
var written = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// A builder makes archives.
type builder struct {
	goCommand string // the go command
	version   string
}

// A file is one of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// archive builds the programs of a target from the source in a folder, packs them into out, and
// writes the SBOM. It returns the names of the files.
func (b builder) archive(t target, source, out string) ([]string, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	base := t.base(b.version)
	var files []file
	var infos []*buildinfo.BuildInfo
	for _, p := range t.programs {
		name := path.Base(p)
		if t.os == "windows" {
			name += ".exe"
		}
		program := filepath.Join(dir, name)
		if err := b.build(t, source, p, program); err != nil {
			return nil, err
		}
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
		files = append(files, file{base + "/" + name, 0o755, data})
	}
	for _, name := range documents {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{base + "/" + name, 0o644, data})
	}
	pack, ending := tarball, ".tar.gz"
	if t.os == "windows" {
		pack, ending = zipped, ".zip"
	}
	data, err := pack(files)
	if err != nil {
		return nil, err
	}
	bill, err := sbom(t.name, b.version, infos)
	if err != nil {
		return nil, err
	}
	names := []string{base + ending, base + ".cdx.json"}
	for i, data := range [][]byte{data, bill} {
		if err := os.WriteFile(filepath.Join(out, names[i]), data, 0o644); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// build compiles a program. Nothing of the machine, the folder or the repository is in it.
func (b builder) build(t target, source, program, into string) error {
	c := exec.Command(b.goCommand, "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -buildid= -X "+module+"/internal/version.stamped="+b.version, "-o", into, "./"+program)
	c.Dir = source
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", program, err, text)
	}
	return nil
}

// addonName is the name of the archive of the addon for Godot 4.
func addonName(version string) string {
	return "dnprelay-godot4_" + strings.TrimPrefix(version, "v") + ".zip"
}

// addon writes the addon for Godot 4, which the repository does not have, into an archive that a project unpacks in its folder.
func (b builder) addon(source, out string) error {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := exec.Command(b.goCommand, "run", "./scripts/godot4", "clients/godot/addons/dnp", dir, "clients/godot/godot4")
	c.Dir = source
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go run ./scripts/godot4: %w\n%s", err, text)
	}
	scripts, err := filepath.Glob(filepath.Join(dir, "*.gd"))
	if err != nil {
		return err
	}
	var files []file
	for _, name := range append(scripts, filepath.Join(source, "LICENSE")) {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files = append(files, file{"addons/dnp/" + filepath.Base(name), 0o644, data})
	}
	data, err := zipped(files)
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}

func tarball(files []file) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: written, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

func zipped(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: written}
		h.SetMode(os.FileMode(f.mode))
		into, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := into.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
