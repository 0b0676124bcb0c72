//go:build !linux

package natstest

// storeRoot is where the folders of stores are made: in the usual folder.
func storeRoot() string { return "" }
