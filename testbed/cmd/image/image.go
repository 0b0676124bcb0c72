package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A config says how containers of an image start.
type config struct {
	name       string // and tag
	entrypoint []string
	user       string // and group
	arch       string // processor that the programs are for
}

// write packs files, given as /PATH=FILE, into an archive, and returns the digest of the
// image.
func write(out string, cfg config, files []string) (digest string, err error) {
	layer, err := layer(files)
	if err != nil {
		return "", err
	}
	archive, digest, err := cfg.archive(layer)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return "", err
	}
	// A reader sees the old archive or the new one.
	if err := os.WriteFile(out+".new", archive, 0o644); err != nil {
		return "", err
	}
	return digest, os.Rename(out+".new", out)
}

// layer returns the one layer: an empty /tmp, and files by name, each folder before its
// content. All users may read files and start programs, and none may write.
func layer(files []string) ([]byte, error) {
	content := map[string]string{}
	for _, f := range files {
		at, from, ok := strings.Cut(f, "=")
		if !ok || !path.IsAbs(at) {
			return nil, fmt.Errorf("want /PATH=FILE, got %q", f)
		}
		content[strings.TrimPrefix(path.Clean(at), "/")] = from
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folders := map[string]bool{".": true}
	var folder func(name string) error
	folder = func(name string) error {
		if folders[name] {
			return nil
		}
		folders[name] = true
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		return put(w, name+"/", nil, 0o755)
	}
	if err := put(w, "tmp/", nil, 0o1777); err != nil {
		return nil, err
	}
	for _, at := range slices.Sorted(maps.Keys(content)) {
		data, err := os.ReadFile(content[at])
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(content[at])
		if err != nil {
			return nil, err
		}
		if err := folder(path.Dir(at)); err != nil {
			return nil, err
		}
		if err := put(w, at, data, 0o444|int64(info.Mode()&0o100>>6*0o111)); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// put writes one entry of a tar, without anything of this machine.
func put(w *tar.Writer, name string, data []byte, mode int64) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: mode, Format: tar.FormatUSTAR}
	if strings.HasSuffix(name, "/") {
		h.Typeflag = tar.TypeDir
	}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err := w.Write(data)
	return err
}

// archive returns the image as an OCI layout with the manifest that docker load reads.
func (cfg config) archive(layer []byte) (archive []byte, digest string, err error) {
	epoch := v1.Time{Time: time.Unix(0, 0).UTC()}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: cfg.arch, OS: "linux", Created: epoch,
		Config: v1.Config{Entrypoint: cfg.entrypoint, User: cfg.user, WorkingDir: "/", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/"}},
	})
	if err != nil {
		return nil, "", err
	}
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: static.NewLayer(layer, types.OCIUncompressedLayer), History: v1.History{Created: epoch, CreatedBy: "testbed/cmd/image"},
	})
	if err != nil {
		return nil, "", err
	}
	_, tag, _ := strings.Cut(cfg.name, ":")
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
		Platform:    &v1.Platform{Architecture: cfg.arch, OS: "linux"},
		Annotations: map[string]string{"io.containerd.image.name": cfg.name, "org.opencontainers.image.ref.name": tag},
	}})
	m, err1 := img.Manifest()
	manifest, err2 := img.RawManifest()
	config, err3 := img.RawConfigFile()
	hash, err4 := img.Digest()
	indexJSON, err5 := index.RawManifest()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, "", err
	}
	blob := func(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
	layerBlob, configBlob := blob(m.Layers[0].Digest), blob(m.Config.Digest)
	docker, err := json.Marshal([]map[string]any{{"Config": configBlob, "RepoTags": []string{cfg.name}, "Layers": []string{layerBlob}}})
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{layerBlob, layer}, {configBlob, config}, {blob(hash), manifest},
		{"index.json", indexJSON}, {"manifest.json", docker}, {"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	} {
		err = errors.Join(err, put(w, f.name, f.data, 0o644))
	}
	err = errors.Join(err, w.Close())
	return b.Bytes(), hash.String(), err
}
