package main

import (
	"fmt"
	"slices"

	"leat/replication"
)

// Values of the setting tail.
const (
	tailAuto   = "auto"
	tailWAL    = "wal"
	tailNotify = "notify"
)

func checkTail(tail, decoder string) error {
	if tails := []string{tailAuto, tailWAL, tailNotify}; !slices.Contains(tails, tail) {
		return fmt.Errorf("no tail %q: it is one of %q", tail, tails)
	}
	if decoders := []string{replication.PgOutput, replication.Wal2JSON}; !slices.Contains(decoders, decoder) {
		return fmt.Errorf("no decoder %q: it is one of %q", decoder, decoders)
	}
	return nil
}
