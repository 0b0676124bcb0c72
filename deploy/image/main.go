// Command image packs files into a container image, without a daemon, a registry or
// a base image: one layer, nothing in it but the files and the folders they need.
//
//	image -o relay.tar -name ghcr.io/dnprelay/dnprelay:dev -entrypoint /relay /relay=bin/relay /edge=bin/edge
//
// The archive is an OCI image layout that is also what "docker save" writes, so
// docker load, podman load, ctr images import and skopeo read it. The same files give
// the same bytes, and the digest that is printed: owners, times and order come from
// here and not from the machine.
//
// Exit codes: 0 written, 1 failed, 2 bad arguments.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	var img image
	out := flag.String("o", "", "archive to write")
	flag.StringVar(&img.name, "name", "", "name and tag of the image")
	entrypoint := flag.String("entrypoint", "", "program that the image starts, with arguments after blanks")
	flag.StringVar(&img.user, "user", "65532:65532", "user and group that it runs as")
	flag.StringVar(&img.arch, "arch", runtime.GOARCH, "processor that the programs are for")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: image -o ARCHIVE -name NAME:TAG -entrypoint PROGRAM PATH=FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	img.entrypoint = strings.Fields(*entrypoint)
	if *out == "" || img.name == "" || len(img.entrypoint) == 0 || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	digest, err := write(*out, img, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s %s %s\n", *out, img.name, digest)
}

// write packs files, given as PATH=FILE, into an archive.
func write(out string, img image, files []string) (digest string, err error) {
	for _, f := range files {
		path, file, ok := strings.Cut(f, "=")
		if !ok || !filepath.IsAbs(path) {
			return "", fmt.Errorf("want /PATH=FILE, got %q", f)
		}
		if err := img.read(path, file); err != nil {
			return "", err
		}
	}
	archive, digest, err := img.archive()
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
