package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// whoPause is how long Who waits for further edges after each answer, because nobody
// knows how many there are.
const whoPause = 300 * time.Millisecond

// A Client is a session that is in a space.
type Client struct{ Client, Session, Edge string }

// Who asks the edges which clients are in the space.
func (s *Space) Who(ctx context.Context) (list []Client, err error) {
	inbox := s.p.nc.NewInbox()
	answers, err := s.p.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("who is in space %s: %w", s.name, err)
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only if the connection is closed
	if err := s.p.nc.PublishRequest(s.p.subjects.Who(s.name), inbox, nil); err != nil {
		return nil, fmt.Errorf("who is in space %s: %w", s.name, err)
	}
	for {
		wait, cancel := context.WithTimeout(ctx, whoPause)
		m, err := answers.NextMsgWithContext(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("who is in space %s: %w", s.name, err)
		}
		var a struct {
			Edge    string
			Clients []Client
		}
		if json.Unmarshal(m.Data, &a) != nil {
			continue
		}
		for _, c := range a.Clients {
			c.Edge = a.Edge
			list = append(list, c)
		}
	}
}
