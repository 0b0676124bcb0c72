package compose

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge/certificate"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/sessionlog/natslog"
)

// A node reads the files of its flags before it starts anything, so that an operator hears of a wrong file
// together with all other problems.

// clusterProblems adds what is wrong with the files of a node of a cluster.
func clusterProblems(list *config.Problems, c *config.Cluster) {
	NATSProblems(list, &c.NATS)
	list.Content("--gossip-key-file", c.GossipKeyFile, gossip.CheckKeyFile)
}

// NATSProblems adds what is wrong with the files for the connection to NATS.
func NATSProblems(list *config.Problems, c *config.NATS) {
	list.Content("--nats-creds", c.NATSCreds, natsbus.CheckCredentials)
	list.Content("--nats-nkey", c.NATSNKey, natsbus.CheckNKey)
	list.Content("--nats-ca", c.NATSCA, natsbus.CheckCA)
	pairProblems(list, "--nats-cert", c.NATSCert, c.NATSKey, natsbus.CheckCert)
}

// clientProblems adds what is wrong with the files about clients.
func clientProblems(list *config.Problems, c *config.Edge, w *config.Web) {
	list.Content("--token-keys", c.TokenKeys, login.CheckKeyFile)
	pairProblems(list, "--tls-cert", w.TLSCert, w.TLSKey, func(cert, key string) error {
		_, err := certificate.Open(cert, key, slog.New(slog.DiscardHandler))
		return err
	})
}

// processProblems adds what is wrong with the file of --http-token, and with the variables of OpenTelemetry.
func processProblems(list *config.Problems, c *config.Admin) {
	list.Content("--http-token", c.HTTPToken, func(file string) error {
		_, err := telemetry.ReadToken(file)
		return err
	})
	telemetry.Problems(func(variable, problem string) { list.Add(variable, "%s", problem) })
}

// pairProblems adds what is wrong with a certificate and its key, if both can be opened.
func pairProblems(list *config.Problems, flag, cert, key string, check func(cert, key string) error) {
	list.Content(flag, cert, func(cert string) (err error) {
		var inner config.Problems
		inner.Content(flag, key, func(key string) error {
			err = check(cert, key)
			return nil
		})
		return err
	})
}

// storeProblem returns an error of JetStream about a stream that contradicts the flags, as a problem with the flags.
// replicas is the flag with the number of copies of each stream.
func storeProblem(err error, replicas string) error {
	if errors.Is(err, jetstream.ErrReplicas) || errors.As(err, new(*natslog.CopiesError)) {
		err = fmt.Errorf("%s: %w", replicas, err)
	}
	return &config.UsageError{Problem: err.Error()}
}
