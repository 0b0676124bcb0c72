package udp

import "syscall"

// dropReason says what an error of a datagram counts as.
func dropReason(errno syscall.Errno) DropReason {
	switch errno {
	case syscall.ECONNREFUSED, syscall.ECONNRESET:
		return DropRefused
	case syscall.EMSGSIZE:
		return DropTooLarge
	case syscall.EAGAIN, syscall.ENOBUFS, syscall.ENOMEM:
		return DropFull
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN,
		syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT:
		return DropUnreachable
	}
	return DropOther
}

// pending reports whether errno can be the late report of an earlier datagram.
func pending(errno syscall.Errno) bool {
	switch errno {
	case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN,
		syscall.EPROTO, syscall.ENOPROTOOPT:
		return true
	}
	return false
}

// fatal reports whether errno is about the socket, not a datagram.
func fatal(errno syscall.Errno) bool {
	switch errno {
	case syscall.EBADF, syscall.ENOTSOCK, syscall.EFAULT, syscall.ENOSYS:
		return true
	}
	return false
}
