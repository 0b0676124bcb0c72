//go:build !linux

package udp

func listen(cfg Config) ([]*Socket, error) {
	s, err := openPortable(cfg)
	if err != nil {
		return nil, err
	}
	return []*Socket{s}, nil
}
