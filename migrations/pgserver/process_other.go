//go:build !linux

package pgserver

import "os/exec"

// dieWithParent is known to Linux only. Elsewhere a server whose owner was
// killed lives on, and the next start is refused by PostgreSQL.
func dieWithParent(*exec.Cmd) {}

func runsIn(int, string) bool { return false }

func childrenOf(int) []int { return nil }
