// Command image packs files into a container image, without a daemon, a registry or a base
// image: one layer with the files and the folders that they need.
//
//	image -o relay.tar -name ghcr.io/dnprelay/dnprelay:dev -entrypoint /relay /relay=bin/relay /edge=bin/edge
//
// The archive is an OCI image layout and also the format of "docker save", so docker load,
// podman load, ctr images import and skopeo read it. Owners, times and order come from
// this program and not from the machine, so the same files give the same bytes and the
// same digest.
//
// Exit codes: 0 written, 1 failed, 2 bad arguments.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
)

func main() {
	var cfg config
	out := flag.String("o", "", "archive to write")
	flag.StringVar(&cfg.name, "name", "", "name and tag of the image")
	entrypoint := flag.String("entrypoint", "", "program that the image starts, with arguments after blanks")
	flag.StringVar(&cfg.user, "user", "65532:65532", "user and group that it runs as")
	flag.StringVar(&cfg.arch, "arch", runtime.GOARCH, "processor that the programs are for")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: image -o ARCHIVE -name NAME:TAG -entrypoint PROGRAM PATH=FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	cfg.entrypoint = strings.Fields(*entrypoint)
	if *out == "" || cfg.name == "" || len(cfg.entrypoint) == 0 || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	digest, err := write(*out, cfg, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s %s %s\n", *out, cfg.name, digest)
}
