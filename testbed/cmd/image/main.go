// Command image packs programs into a container image.
//
//	image -o relay.tar -name ghcr.io/dnprelay/dnprelay:dev -entrypoint /relay /relay=bin/relay /edge=bin/edge
//
// Exit codes: 0 written, 1 failed, 2 bad arguments.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/dnprelay/dnprelay/testbed/image"
)

func main() {
	var cfg image.Config
	out := flag.String("o", "", "archive to write")
	flag.StringVar(&cfg.Name, "name", "", "name and tag of the image")
	entrypoint := flag.String("entrypoint", "", "program that the image starts, with arguments after blanks")
	flag.StringVar(&cfg.User, "user", "65532:65532", "user and group that it runs as")
	flag.StringVar(&cfg.Arch, "arch", runtime.GOARCH, "processor that the programs are for")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: image -o ARCHIVE -name NAME:TAG -entrypoint PROGRAM PATH=FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	cfg.Entrypoint = strings.Fields(*entrypoint)
	if *out == "" || cfg.Name == "" || len(cfg.Entrypoint) == 0 || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	digest, err := image.Write(*out, cfg, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s %s %s\n", *out, cfg.Name, digest)
}
