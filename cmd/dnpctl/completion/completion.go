// Package completion writes scripts with which shells complete the commands and flags of dnpctl. A script
// lists them: it runs nothing, and never asks the network.
package completion

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// A Command is the command completion.
type Command struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish. To use the script at once: source <(dnpctl completion bash), the same with zsh, or dnpctl completion fish | source."`

	model *kong.Application
}

// SetModel tells the command which commands there are.
func (c *Command) SetModel(m *kong.Application) { c.model = m }

// Run prints the script.
func (c *Command) Run(context.Context, *slog.Logger) error {
	return Write(os.Stdout, c.Shell, c.model)
}

// An entry is a command or a flag.
type entry struct{ name, help string }

// A level is what may follow a command: the path of commands up to here, and subcommands and flags.
type level struct {
	path            string // "context add"; empty for the program
	commands, flags []entry
}

// levels returns the program and all its commands, those that are hidden left out.
func levels(m *kong.Application) []level {
	var all []level
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		l := level{path: path}
		for _, group := range n.AllFlags(true) {
			for _, f := range group {
				l.flags = append(l.flags, entry{"--" + f.Name, f.Help})
			}
		}
		for _, child := range n.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				l.commands = append(l.commands, entry{child.Name, child.Help})
			}
		}
		slices.SortFunc(l.flags, func(a, b entry) int { return strings.Compare(a.name, b.name) })
		all = append(all, l)
		for _, child := range n.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				walk(child, strings.TrimSpace(path+" "+child.Name))
			}
		}
	}
	walk(m.Node, "")
	return all
}

// Write writes the script for a shell.
func Write(w io.Writer, shell string, m *kong.Application) error {
	write := map[string]func(io.Writer, string, []level) error{"bash": bash, "zsh": zsh, "fish": fish}[shell]
	return write(w, m.Name, levels(m))
}

func names(list []entry) string {
	all := make([]string, len(list))
	for i, e := range list {
		all[i] = e.name
	}
	return strings.Join(all, " ")
}

// bash writes a function that finds the command on the line and offers its subcommands and flags,
// or else files.
func bash(w io.Writer, program string, all []level) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Completion of %s for bash.\n_%[1]s() {\n", program)
	b.WriteString("  local word path= next\n  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    next=\"$path${path:+ }$word\"\n    case \"$next\" in\n")
	for _, l := range all[1:] {
		fmt.Fprintf(&b, "      %q) path=$next ;;\n", l.path)
	}
	b.WriteString("    esac\n  done\n  local commands= flags=\n  case \"$path\" in\n")
	for _, l := range all {
		fmt.Fprintf(&b, "    %q) commands=%q; flags=%q ;;\n", l.path, names(l.commands), names(l.flags))
	}
	b.WriteString("  esac\n  word=\"${COMP_WORDS[COMP_CWORD]}\"\n  case \"$word\" in\n    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n")
	b.WriteString("    *) COMPREPLY=($(compgen -W \"$commands\" -- \"$word\")) ;;\n  esac\n}\n")
	fmt.Fprintf(&b, "complete -o default -F _%s %[1]s\n", program)
	_, err := io.WriteString(w, b.String())
	return err
}

// zsh writes the same with descriptions.
func zsh(w io.Writer, program string, all []level) error {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n# Completion of %[1]s for zsh.\n_%[1]s() {\n  local word path_= next\n  local -a commands flags\n", program)
	b.WriteString("  for word in \"${(@)words[2,CURRENT-1]}\"; do\n    next=\"$path_${path_:+ }$word\"\n    case \"$next\" in\n")
	for _, l := range all[1:] {
		fmt.Fprintf(&b, "      %q) path_=$next ;;\n", l.path)
	}
	b.WriteString("    esac\n  done\n  case \"$path_\" in\n")
	list := func(entries []entry) string {
		var items []string
		for _, e := range entries {
			items = append(items, "'"+e.name+":"+quoted(brief(e.help))+"'")
		}
		return strings.Join(items, " ")
	}
	for _, l := range all {
		fmt.Fprintf(&b, "    %q)\n      commands=(%s)\n      flags=(%s) ;;\n", l.path, list(l.commands), list(l.flags))
	}
	b.WriteString("  esac\n  if [[ \"${words[CURRENT]}\" == -* ]]; then\n    _describe flag flags\n  elif (( $#commands )); then\n    _describe command commands\n  else\n    _files\n  fi\n}\n")
	fmt.Fprintf(&b, "compdef _%s %[1]s\n", program)
	_, err := io.WriteString(w, b.String())
	return err
}

// fish writes one rule for each command and flag.
func fish(w io.Writer, program string, all []level) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Completion of %s for fish.\n", program)
	for _, l := range all {
		seen := "__fish_use_subcommand"
		if l.path != "" {
			var tests []string
			for word := range strings.FieldsSeq(l.path) {
				tests = append(tests, "__fish_seen_subcommand_from "+word)
			}
			if len(l.commands) > 0 {
				tests = append(tests, "not __fish_seen_subcommand_from "+names(l.commands))
			}
			seen = strings.Join(tests, "; and ")
		}
		for _, c := range l.commands {
			fmt.Fprintf(&b, "complete -c %s -f -n '%s' -a %s -d '%s'\n", program, seen, c.name, quotedFish(brief(c.help)))
		}
		for _, f := range l.flags {
			fmt.Fprintf(&b, "complete -c %s -n '%s' -l %s -d '%s'\n", program, seen, strings.TrimPrefix(f.name, "--"), quotedFish(brief(f.help)))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// briefMax is how many characters of a help text a shell shows.
const briefMax = 70

// brief returns the first sentence of a help text, shortened.
func brief(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	first = strings.TrimSuffix(first, ".")
	if runes := []rune(first); len(runes) > briefMax {
		first = string(runes[:briefMax-1]) + "…"
	}
	return first
}

func quoted(text string) string {
	return strings.NewReplacer("'", `'\''`, ":", `\:`).Replace(text)
}

func quotedFish(text string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) }
