package natstest

import "syscall"

// memoryMin is how many bytes must be free in the file system in memory: JetStream offers three quarters of them to streams.
const memoryMin = 8 << 30

// storeRoot is where the folders of stores are made: in memory if there is room. A server waits for the disk several times for each
// stream that it makes, and on a disk that compilers use, too, a deployment with its 50 streams waits for longer than nodes do.
func storeRoot() string {
	const shm = "/dev/shm"
	var s syscall.Statfs_t
	if err := syscall.Statfs(shm, &s); err != nil || s.Bavail*uint64(s.Bsize) < memoryMin {
		return "" // the usual folder
	}
	return shm
}
