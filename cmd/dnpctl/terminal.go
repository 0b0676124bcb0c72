package main

import (
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether standard output is a terminal.
func isTerminal() bool { return term.IsTerminal(int(os.Stdout.Fd())) }

// terminalSize returns the size of the terminal in characters.
func terminalSize() (width, height int) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width == 0 || height == 0 {
		return 80, 24
	}
	return width, height
}
