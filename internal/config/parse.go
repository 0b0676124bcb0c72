package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dnprelay/dnprelay/internal/version"
)

// envPrefix begins the name of every environment variable of a flag.
const envPrefix = "DNP"

// errHelp reports that the program printed its help or version, as the arguments asked.
var errHelp = errors.New("help printed")

// A parser turns arguments and environment into the struct of one command. Kong stops at
// the first bad value; the parser notes each one and goes on.
type parser struct {
	kong     *kong.Kong
	args     []string
	problems Problems
	helped   bool
}

func newParser(p Program) (*parser, error) {
	s := &parser{}
	options := []kong.Option{
		kong.Name(p.Name),
		kong.Description(p.Help),
		kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(func(int) { s.helped = true }),
		kong.DefaultEnvars(envPrefix),
		kong.Vars{"version": p.Name + " " + version.Long(), "listen": "udp://:3413"},
		kong.Embed(&struct {
			Version kong.VersionFlag `env:"-" help:"Print the version and exit."`
		}{}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.ValueFormatter(describe),
		kong.KindMapper(reflect.Int, noting{s, parsing("a whole number", strconv.Atoi)}),
		kong.KindMapper(reflect.Float64, noting{s, parsing("a number", parseFloat)}),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), noting{s, parsing("a duration with its unit, as 5ms, 2s or 1m30s", time.ParseDuration)}),
		kong.TypeMapper(reflect.TypeFor[[]Listener](), noting{s, parseListeners}),
	}
	k, err := kong.New(p.Commands, options...)
	if err != nil {
		return nil, fmt.Errorf("flags of %s: %w", p.Name, err)
	}
	for _, node := range k.Model.Leaves(false) {
		if lines := node.Tag.Get("example"); lines != "" {
			node.Detail = strings.TrimSpace("Examples:\n  " + strings.ReplaceAll(lines, "; ", "\n  ") + "\n" + node.Tag.Get("rights"))
		}
	}
	s.kong = k
	return s, nil
}

// describe returns the help of a flag with its default, which kong shows only where no placeholder stands.
func describe(v *kong.Value) string {
	told := *v
	if text, ended := strings.CutSuffix(v.Help, "."); ended && v.Flag != nil && v.Flag.PlaceHolder != "" && v.Default != "" && !strings.Contains(v.Help, "(default") {
		told.Help = text + " (default " + v.Default + ")."
	}
	return kong.DefaultHelpValueFormatter(&told)
}

// parse returns the selected command, or every problem.
func (s *parser) parse(args []string) (*kong.Context, Problems, error) {
	s.args = args
	args, values := s.noteUnknown(args)
	ctx, err := s.kong.Parse(args)
	if s.helped {
		return nil, nil, errHelp
	}
	if err != nil {
		if !values { // what is missing may be among the values
			s.problems = append(s.problems, err.Error())
		}
		return nil, s.problems, nil
	}
	unparsed := slices.Clone(s.problems)
	for _, line := range settingProblems(ctx) {
		flag, _, _ := strings.Cut(line, ": ")
		if !slices.ContainsFunc(unparsed, func(of string) bool { return strings.HasPrefix(of, flag+": ") }) { // a second problem of a flag would only confuse
			s.problems = append(s.problems, line)
		}
	}
	return ctx, s.problems, nil
}

// wantsCommand reports whether args lead to a group of commands, and name none of them.
func (s *parser) wantsCommand(args []string) bool {
	node := s.kong.Model.Node
	for _, arg := range args {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == arg })
		if i < 0 {
			return false
		}
		node = node.Children[i]
	}
	return len(node.Children) > 0
}

// helpCommand returns the command line that prints help about the command in args.
func (s *parser) helpCommand(program string) string {
	for _, node := range s.kong.Model.Children {
		if len(s.args) > 0 && node.Name == s.args[0] {
			return program + " " + node.Name + " --help"
		}
	}
	return program + " --help"
}

// flags returns the flags of all commands, those that several have more than once.
func (s *parser) flags() (all []*kong.Flag) {
	for _, node := range append(s.kong.Model.Leaves(false), s.kong.Model.Node) {
		all = append(all, slices.Concat(node.AllFlags(false)...)...)
	}
	return all
}

// noteUnknown notes flags that no command has, with the most similar one, and returns args
// without them and their values. Kong stops at the first. values reports whether an argument was
// taken for such a value.
func (s *parser) noteUnknown(args []string) (rest []string, values bool) {
	known := map[string]bool{"help": true}
	for _, flag := range s.flags() {
		known[flag.Name], known["no-"+flag.Name] = true, true
	}
	for i := 0; i < len(args); i++ {
		name, _, inline := strings.Cut(args[i], "=")
		if name == "--" {
			rest = append(rest, args[i:]...)
			break
		}
		if !strings.HasPrefix(name, "--") || known[name[2:]] {
			rest = append(rest, args[i])
			continue
		}
		s.problems.Add(name, "unknown flag%s", suggestion("--", nearest(name[2:], slices.Collect(maps.Keys(known)))))
		if !inline && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++ // its value
			values = true
		}
	}
	return rest, values
}

// settingProblems returns what is wrong with the arguments and flags of the selected command by their
// tags, and then the Problems of the command and of every struct that it embeds. An optional argument or flag without a default may be absent.
func settingProblems(ctx *kong.Context) (list Problems) {
	node := ctx.Selected()
	if node == nil {
		return nil
	}
	check := func(name string, v *kong.Value) {
		if v.Tag.Has("want") && (v.Required || v.HasDefault || !v.Target.IsZero()) {
			list.want(name, v.Tag.Get("want"), v.Target.Interface())
		}
	}
	for _, arg := range node.Positional {
		check(strings.ToUpper(arg.Name), arg)
	}
	for _, flag := range slices.Concat(node.AllFlags(false)...) {
		check("--"+flag.Name, flag.Value)
	}
	var collect func(v reflect.Value)
	collect = func(v reflect.Value) {
		for i := range v.NumField() {
			if v.Type().Field(i).Anonymous {
				collect(v.Field(i))
			}
		}
		if c, ok := v.Addr().Interface().(interface{ Problems() Problems }); ok {
			for _, line := range c.Problems() {
				list.addLine(line)
			}
		}
	}
	collect(node.Target)
	return list
}

// noting is a kong mapper that notes values that cannot be parsed.
type noting struct {
	parser *parser
	parse  func(text string, target reflect.Value) error
}

func (n noting) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	flag := "--" + ctx.Value.Name
	if !ctx.Scan.Peek().IsValue() {
		n.parser.problems.Add(flag, "needs a value")
		return nil
	}
	if err := n.parse(fmt.Sprint(ctx.Scan.Pop().Value), target); err != nil {
		n.parser.problems.Add(flag, "%v%s", err, n.parser.origin(ctx.Value))
	}
	return nil
}

// origin returns a note if a value comes from an environment variable, which is easily
// overlooked.
func (s *parser) origin(v *kong.Value) string {
	for _, arg := range s.args {
		if name, _, _ := strings.Cut(arg, "="); name == "--"+v.Name {
			return ""
		}
	}
	for _, env := range v.Tag.Envs {
		if _, ok := os.LookupEnv(env); ok {
			return " (from " + env + ")"
		}
	}
	return ""
}

// parsing returns the parse function of a noting mapper.
func parsing[T any](want string, parse func(string) (T, error)) func(string, reflect.Value) error {
	return func(text string, target reflect.Value) error {
		value, err := parse(text)
		if err != nil {
			return fmt.Errorf("want %s, got %q", want, text)
		}
		target.Set(reflect.ValueOf(value).Convert(target.Type()))
		return nil
	}
}

func parseFloat(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

// parseListeners appends listeners that are separated by commas.
func parseListeners(text string, target reflect.Value) error {
	for _, part := range strings.Split(text, ",") {
		l, err := ParseListener(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		target.Set(reflect.Append(target, reflect.ValueOf(l)))
	}
	return nil
}
