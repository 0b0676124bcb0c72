package compose

import (
	"context"
	"log/slog"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/natsroles"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/subject"
)

// DialNATS connects a node to NATS, for as long as it may wait at the start.
func DialNATS(ctx context.Context, c *config.NATS, n *config.Node, log *slog.Logger) (*natsbus.Bus, error) {
	return natsbus.Dial(ctx, natsbus.Config{
		URL: c.NATSURL, Security: Security(c), Name: n.Name, InboxPrefix: natsroles.NodeInbox,
		OnError: func(err error) { log.Warn("NATS", "error", err) },
	}, n.StartTimeout, log)
}

// Security returns how to log in at NATS.
func Security(c *config.NATS) natsbus.Security {
	return natsbus.Security{
		User: c.NATSUser, Password: c.NATSPassword, Credentials: c.NATSCreds, NKey: c.NATSNKey, CA: c.NATSCA, Cert: c.NATSCert, Key: c.NATSKey,
	}
}

// Subjects returns the subjects of the deployment.
func Subjects(c *config.NATS) subject.Names {
	return subject.Names{Prefix: c.SubjectPrefix}
}
