//go:build !linux

package dbtest

// inMemory is not known here.
func inMemory() string { return "" }
