package replication

import (
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/subject"
)

// A presence is a client with a session in the space.
type presence struct {
	sessions int
	owned    []*stored // states of the client; may contain dead ones
	refused  refusedEvents
}

// Join notes that a session of the client is in the space.
func (s *Store) Join(client, session string) {
	if !subject.ValidToken(client) || session == "" || s.sessions[session] == client {
		return
	}
	if s.sessions[session] != "" {
		s.Leave(s.sessions[session], session)
	}
	if len(s.sessions) >= s.limits.Sessions {
		s.stats.SessionsRefused++
		return
	}
	s.sessions[session] = client
	if s.clients[client] == nil {
		s.clients[client] = &presence{}
	}
	s.clients[client].sessions++
}

// Leave notes that a session left the space. The Store removes the states that the session
// made, and with the last session of a client its groups.
func (s *Store) Leave(client, session string) {
	if s.sessions[session] != client || client == "" {
		return
	}
	delete(s.sessions, session)
	p := s.clients[client]
	for _, st := range p.owned {
		if !st.dead && st.owned.session == session {
			s.detach(st)
		}
	}
	p.forget()
	if p.sessions--; p.sessions > 0 {
		return
	}
	delete(s.clients, client)
	if st := s.states.byKey[groupsKey(client)]; st != nil {
		s.detach(st)
	}
}

// ForgetAbsent removes the groups of clients without a session. A holder that restored the
// space calls it once all edges have reported their sessions, because clients may have left
// while the shard had no holder.
func (s *Store) ForgetAbsent() {
	for _, st := range s.states.all {
		if client, ok := groupsClient(st.Desc.Key); ok && !st.dead && s.clients[client] == nil {
			s.detach(st)
		}
	}
}

// forget drops dead states from the list.
func (p *presence) forget() {
	p.owned = slices.DeleteFunc(p.owned, func(st *stored) bool { return st.dead })
}

func (s *Store) knowsClient(client string) *Error {
	if !subject.ValidToken(client) {
		return Errorf(CodeBadRequest, "%q is not the name of a client", client)
	}
	if s.clients[client] == nil {
		return Errorf(CodeUnknownClient, "no client %q is in the space", client)
	}
	return nil
}

// group changes the groups of a client. A state of their own holds them, so that keyframes,
// checksums and repair carry them to every edge.
func (s *Store) group(op *Op) *Error {
	if err := s.knowsClient(op.Client); err != nil {
		return err
	}
	for _, names := range [][]string{op.Join, op.Leave} {
		if err := checkTokens("group", names); err != nil {
			return err
		}
	}
	groups := s.Groups(op.Client)
	for _, g := range op.Join {
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	groups = slices.DeleteFunc(groups, func(g string) bool { return slices.Contains(op.Leave, g) })
	if len(groups) > s.limits.Groups {
		return Errorf(CodeTooLarge, "client %q would be in %d groups, at most %d are allowed", op.Client, len(groups), s.limits.Groups)
	}
	return s.setGroups(op.Client, groups)
}

// Groups returns the groups of a client.
func (s *Store) Groups(client string) []string { return s.states.groups(client) }

func (s *Store) setGroups(client string, groups []string) *Error {
	st := s.states.byKey[groupsKey(client)]
	if len(groups) == 0 {
		if st != nil {
			s.detach(st)
		}
		return nil
	}
	c := s.schemas.acquire([]ValueDef{{Type: wire.TypeData}}, valueMaxMax)
	defer s.schemas.release(c)
	s.edit.reset(1)
	if err := s.edit.add(c, 0, Encoded{wire.TypeData, appendGroups(nil, groups)}); err != nil {
		return err
	}
	if st != nil && st.schema.sameLayout(c) {
		s.applyEdit(st, &s.edit)
		return nil
	}
	return s.replace(st, Description{Key: groupsKey(client)}, c, nil)
}

// appendGroups appends the data value that holds the groups of a client: its length as uint16,
// then
//
//	count uint8, count × {length uint8, bytes}
func appendGroups(b []byte, groups []string) []byte {
	data := []byte{byte(len(groups))}
	for _, g := range groups {
		data = appendShort(data, g)
	}
	return appendLong(b, data)
}

// parseGroups returns the groups in a value, or none if the value is malformed.
func parseGroups(value []byte) []string {
	r := wire.NewReader(value)
	r.Uint16()
	groups := make([]string, 0, 4)
	for range r.Uint8() {
		groups = append(groups, readShort(&r))
	}
	if _, err := finish(0, &r); err != nil {
		return nil
	}
	return groups
}
