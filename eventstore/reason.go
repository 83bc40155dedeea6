package eventstore

import "slices"

// Why a message is dead, as the data of message.dead_lettered has it.
const (
	Rejected         = "rejected"          // a consumer refused it
	NonRetryable     = "non_retryable"     // it failed with an error class that its queue does not retry
	RetriesExhausted = "retries_exhausted" // it failed too often
	TimeOver         = "expired"           // nobody took it in time, and its queue keeps those
	CircuitOpen      = "circuit_open"      // the circuit of its key was open
)

var deathReasons = []string{Rejected, NonRetryable, RetriesExhausted, TimeOver, CircuitOpen}

// DeathReasons are all of them.
func DeathReasons() []string { return slices.Clone(deathReasons) }

// IsDeathReason says whether it is one of them.
func IsDeathReason(text string) bool { return slices.Contains(deathReasons, text) }
