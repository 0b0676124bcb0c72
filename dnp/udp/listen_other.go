//go:build !linux

package udp

import (
	"errors"
	"syscall"
)

// SharePort fails: only Linux chooses a socket for each client.
func SharePort(string, string, syscall.RawConn) error { return errors.ErrUnsupported }

func listen(cfg Config) ([]*Socket, error) { return openPortable(cfg) }
