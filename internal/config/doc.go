// Package config gives every command of this module the same flags, environment
// variables, problem reports, logs, signals and exit codes.
//
// A command is a struct with kong tags that embeds the flag structs it needs
// ([Logging], [Admin], [NATS], [Node], [Edge], [Relay]) and has a Run method:
//
//	type serve struct {
//		config.Logging `group:"Logs"`
//		config.Edge    `group:"Edge"`
//	}
//
//	func (c *serve) Run(ctx context.Context, log *slog.Logger) error
//
//	func main() {
//		os.Exit(config.Program{Name: "edge", Commands: &commands{}}.Main(os.Args[1:]))
//	}
//
// Every flag --some-name can also be given as DNP_SOME_NAME; a flag wins. The program
// finds all problems of a configuration before it starts anything, and lists them at
// once: the tag want of a flag or an argument says which values it may have, and a struct of flags whose
// values depend on each other has a Problems method that returns one line for each. The
// tag example of a command has command lines, with "; " between them, which --help shows, and the tag rights what is said below them. The context of Run ends at the first SIGINT or SIGTERM, which asks the command to drain; a
// second one ends the process at once. Exit codes: 0 drained or done, 1 failed with one
// line that says why, 2 bad configuration.
//
// The package does not know what the settings do.
package config
