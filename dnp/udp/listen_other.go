//go:build !linux

package udp

func listen(cfg Config) ([]*Socket, error) { return openPortable(cfg) }
