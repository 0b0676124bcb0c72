package sessionlog

// Info returns who the session is; nothing before it is found.
func (s *Session) Info() Info { return s.info }
