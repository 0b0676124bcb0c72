// Package config is what every command of this module does the same way: flags
// and environment variables, problems with them, logs, signals and exit codes.
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
// Every flag --some-name can also be given as DNP_SOME_NAME; a flag wins. All
// problems of a configuration are found before anything starts, and listed at
// once. The context of Run ends at the first SIGINT or SIGTERM, which means
// "drain"; a second one ends the process at once. Exit codes: 0 drained or done,
// 1 failed with one line that says why, 2 bad configuration.
//
// It does not know what the settings do.
package config
