//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// recipe does literally what the chart's README says about publishing by hand, in
// namespace play.
func (k *kube) recipe() error {
	file := filepath.Join(k.cfg.chart, "README.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, block := range strings.Split(string(text), "```sh\n")[1:] {
		commands, _, _ := strings.Cut(block, "```")
		if !strings.Contains(commands, "/dnpctl publish") {
			continue
		}
		out, err := k.command("", "bash", "-euo", "pipefail", "-c", `kubectl() { command kubectl -n play "$@"; }`+"\n"+commands)
		fmt.Print(indent(out))
		return err
	}
	return fmt.Errorf("%s does not say how to publish by hand", file)
}
