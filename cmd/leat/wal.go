package main

import (
	"fmt"
	"slices"

	"leat/api"
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

// tailAPI tells the API of a tail.
func tailAPI(tail *replication.Tail) func(walEnd uint64) api.Tail {
	return func(walEnd uint64) api.Tail { return tailOf(tail.State(), walEnd) }
}

func tailOf(s replication.State, walEnd uint64) api.Tail {
	tail := api.Tail{
		Mode:       string(s.Mode),
		Since:      s.Since.UTC(),
		Decoder:    s.Decoder,
		Reason:     s.Reason,
		Slot:       s.Slot,
		Reconnects: s.Reconnects,
	}
	if s.Slot != "" {
		tail.ReceivedLSN = s.Received.String()
		tail.LagBytes = max(0, int64(walEnd)-int64(s.Received))
	}
	return tail
}
