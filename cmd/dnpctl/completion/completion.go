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
		for _, f := range slices.Concat(n.AllFlags(true)...) {
			l.flags = append(l.flags, entry{"--" + f.Name, f.Help})
		}
		slices.SortFunc(l.flags, func(a, b entry) int { return strings.Compare(a.name, b.name) })
		at := len(all)
		all = append(all, l)
		for _, child := range n.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				all[at].commands = append(all[at].commands, entry{child.Name, child.Help})
				walk(child, strings.TrimSpace(path+" "+child.Name))
			}
		}
	}
	walk(m.Node, "")
	return all
}

// Write writes the script for a shell.
func Write(w io.Writer, shell string, m *kong.Application) error {
	write := map[string]func(string, []level) string{"bash": bash, "zsh": zsh, "fish": fish}[shell]
	_, err := io.WriteString(w, write(m.Name, levels(m)))
	return err
}

func names(list []entry) string { return joined(list, " ", func(e entry) string { return e.name }) }

// joined returns the texts of a list with a separator between them.
func joined[T any](list []T, between string, text func(T) string) string {
	all := make([]string, len(list))
	for i, x := range list {
		all[i] = text(x)
	}
	return strings.Join(all, between)
}

// bash returns a function that finds the command on the line and offers its subcommands and flags,
// or else files.
func bash(program string, all []level) string {
	return fmt.Sprintf(`# Completion of %[1]s for bash.
_%[1]s() {
  local word path= next
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    next="$path${path:+ }$word"
    case "$next" in
%[2]s    esac
  done
  local commands= flags=
  case "$path" in
%[3]s  esac
  word="${COMP_WORDS[COMP_CWORD]}"
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "$commands" -- "$word")) ;;
  esac
}
complete -o default -F _%[1]s %[1]s
`, program, joined(all[1:], "", func(l level) string { return fmt.Sprintf("      %q) path=$next ;;\n", l.path) }), joined(all, "", func(l level) string {
		return fmt.Sprintf("    %q) commands=%q; flags=%q ;;\n", l.path, names(l.commands), names(l.flags))
	}))
}

// zsh returns the same with descriptions.
func zsh(program string, all []level) string {
	described := func(list []entry) string {
		return joined(list, " ", func(e entry) string {
			return "'" + e.name + ":" + strings.NewReplacer("'", `'\''`, ":", `\:`).Replace(brief(e.help)) + "'"
		})
	}
	return fmt.Sprintf(`#compdef %[1]s
# Completion of %[1]s for zsh.
_%[1]s() {
  local word path_= next
  local -a commands flags
  for word in "${(@)words[2,CURRENT-1]}"; do
    next="$path_${path_:+ }$word"
    case "$next" in
%[2]s    esac
  done
  case "$path_" in
%[3]s  esac
  if [[ "${words[CURRENT]}" == -* ]]; then
    _describe flag flags
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}
compdef _%[1]s %[1]s
`, program, joined(all[1:], "", func(l level) string { return fmt.Sprintf("      %q) path_=$next ;;\n", l.path) }), joined(all, "", func(l level) string {
		return fmt.Sprintf("    %q)\n      commands=(%s)\n      flags=(%s) ;;\n", l.path, described(l.commands), described(l.flags))
	}))
}

// fish returns one rule for each command and flag.
func fish(program string, all []level) string {
	text := func(help string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(brief(help)) }
	return fmt.Sprintf("# Completion of %s for fish.\n", program) + joined(all, "", func(l level) string {
		seen := "__fish_use_subcommand"
		if l.path != "" {
			seen = joined(strings.Fields(l.path), "; and ", func(word string) string { return "__fish_seen_subcommand_from " + word })
		}
		if l.path != "" && len(l.commands) > 0 {
			seen += "; and not __fish_seen_subcommand_from " + names(l.commands)
		}
		return joined(l.commands, "", func(c entry) string {
			return fmt.Sprintf("complete -c %s -f -n '%s' -a %s -d '%s'\n", program, seen, c.name, text(c.help))
		}) + joined(l.flags, "", func(f entry) string {
			return fmt.Sprintf("complete -c %s -n '%s' -l %s -d '%s'\n", program, seen, strings.TrimPrefix(f.name, "--"), text(f.help))
		})
	})
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
