package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// An image is what goes into an archive.
type image struct {
	name       string // and tag
	entrypoint []string
	user       string
	arch       string
	files      []file
}

// A file of the layer.
type file struct {
	path string // without the leading slash
	data []byte
	mode int64
}

// read adds a file of this machine. Programs can be started by everybody, and nobody
// can write anything.
func (img *image) read(at, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	mode := int64(0o444)
	if info.Mode()&0o111 != 0 {
		mode = 0o555
	}
	img.files = append(img.files, file{strings.TrimPrefix(path.Clean(at), "/"), data, mode})
	return nil
}

// layer returns the one layer: files by name, each folder before what is in it, and
// an empty /tmp.
func (img *image) layer() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{"": true}
	folder := func(name string, mode int64) error {
		made[name] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Format: tar.FormatUSTAR})
	}
	if err := folder("tmp", 0o1777); err != nil {
		return nil, err
	}
	files := slices.SortedFunc(slices.Values(img.files), func(a, b file) int { return strings.Compare(a.path, b.path) })
	for _, f := range files {
		for i, c := range f.path {
			if c == '/' && !made[f.path[:i]] {
				if err := folder(f.path[:i], 0o755); err != nil {
					return nil, err
				}
			}
		}
		if err := put(w, f.path, f.data, f.mode); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// put writes one file of a tar, without anything of this machine.
func put(w *tar.Writer, name string, data []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: mode, Format: tar.FormatUSTAR}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err := w.Write(data)
	return err
}

// A descriptor names a blob, https://github.com/opencontainers/image-spec/blob/main/descriptor.md.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

// A layout collects the blobs of an OCI image layout.
type layout struct {
	names []string
	blobs map[string][]byte
}

// add keeps a blob and describes it.
func (l *layout) add(mediaType string, data []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	name := "blobs/sha256/" + sum
	l.names = append(l.names, name)
	l.blobs[name] = data
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
}

// archive returns the archive and the digest of the image's manifest.
func (img *image) archive() (archive []byte, digest string, err error) {
	layer, err := img.layer()
	if err != nil {
		return nil, "", err
	}
	l := layout{blobs: map[string][]byte{}}
	l0 := l.add("application/vnd.oci.image.layer.v1.tar", layer)
	config := l.add("application/vnd.oci.image.config.v1+json", encode(img.config(l0.Digest)))
	manifest := l.add("application/vnd.oci.image.manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []descriptor{l0},
	}))
	manifest.Platform = map[string]string{"architecture": img.arch, "os": "linux"}
	_, tag, _ := strings.Cut(img.name, ":")
	manifest.Annotations = map[string]string{"io.containerd.image.name": img.name, "org.opencontainers.image.ref.name": tag}
	names := append(slices.Clone(l.names), "index.json", "manifest.json", "oci-layout")
	l.blobs["oci-layout"] = encode(map[string]string{"imageLayoutVersion": "1.0.0"})
	l.blobs["index.json"] = encode(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{manifest},
	})
	l.blobs["manifest.json"] = encode([]map[string]any{{ // what docker load reads
		"Config": l.names[1], "RepoTags": []string{img.name}, "Layers": []string{l.names[0]},
	}})
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		if err := put(w, name, l.blobs[name], 0o644); err != nil {
			return nil, "", err
		}
	}
	err = w.Close()
	return b.Bytes(), manifest.Digest, err
}

// config returns how containers of the image are started.
func (img *image) config(layer string) map[string]any {
	const epoch = "1970-01-01T00:00:00Z"
	return map[string]any{
		"architecture": img.arch, "os": "linux", "created": epoch,
		"config": map[string]any{
			"Entrypoint": img.entrypoint, "User": img.user, "WorkingDir": "/", "Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin:/"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layer}},
		"history": []map[string]string{{"created": epoch, "created_by": "deploy/image"}},
	}
}

// encode cannot fail on what is given here; keys of maps are in order.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("image: " + err.Error())
	}
	return b
}
