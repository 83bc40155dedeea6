package main

import (
	"time"

	"github.com/spf13/cobra"

	"leat/api"
)

// policyFlags are the settings of a channel.
type policyFlags struct {
	lease, baseDelay, maxDelay, dedupWindow, priorityAgeing time.Duration
	deadLetterRetention, circuitCoolDown                    time.Duration

	maxDeliveries     int
	circuitThreshold  int
	circuit           bool
	deadLetterTo      string
	strategy          string
	jitter            float64
	nonRetryable      []string
	deadLetterExpired bool

	retentionAge                      time.Duration
	retentionBytes, retentionMessages int64
}

func addPolicyFlags(cmd *cobra.Command) *policyFlags {
	p := &policyFlags{}
	flags := cmd.Flags()
	flags.DurationVar(&p.lease, "lease", 30*time.Second, "how long a consumer may hold a message that it polled without saying")
	flags.IntVar(&p.maxDeliveries, "max-deliveries", 5, "after so many failed deliveries a message is dead")
	flags.StringVar(&p.strategy, "retry-strategy", "exponential", "how the delay grows: exponential or fixed")
	flags.DurationVar(&p.baseDelay, "base-delay", time.Second, "before the second delivery")
	flags.DurationVar(&p.maxDelay, "max-delay", 30*time.Second, "bound of the delay")
	flags.Float64Var(&p.jitter, "jitter", 0.2, "how much of the delay is left to chance, 0 to 1")
	flags.StringArrayVar(&p.nonRetryable, "non-retryable", nil, "error class that makes a message dead at once; once for each")
	flags.BoolVar(&p.deadLetterExpired, "dead-letter-expired", false, "whether expired messages become dead letters")
	flags.DurationVar(&p.dedupWindow, "dedup-window", 10*time.Minute, "how long a dedup id is remembered")
	flags.DurationVar(&p.priorityAgeing, "priority-ageing", 0, "how much waiting is worth one step of priority; 0 is strict priority")
	flags.StringVar(&p.deadLetterTo, "dead-letter-to", "", "a channel that gets copies of the messages that die; \"\" is none")
	flags.DurationVar(&p.deadLetterRetention, "dead-letter-retention", 0, "how long dead letters are kept; 0 is for ever")
	flags.BoolVar(&p.circuit, "circuit", true, "fifo: whether a dead letter sends the rest of its key to the dead letters")
	flags.DurationVar(&p.circuitCoolDown, "circuit-cool-down", 0, "fifo: after which one message of a shut key is tried, of circuits that open from now on; 0 is never")
	flags.IntVar(&p.circuitThreshold, "circuit-threshold", 1, "fifo: dead letters of a key in a row that shut it")
	flags.DurationVar(&p.retentionAge, "retention-age", 0, "stream: how long messages are kept; 0 is for ever")
	flags.Int64Var(&p.retentionBytes, "retention-bytes", 0, "stream: how many bytes of payloads are kept; 0 is no bound")
	flags.Int64Var(&p.retentionMessages, "retention-messages", 0, "stream: how many messages are kept; 0 is no bound")
	return p
}

// patch is what was given on the command line.
func (p *policyFlags) patch(cmd *cobra.Command) api.PolicyPatch {
	return api.PolicyPatch{
		Lease:         (*api.Duration)(given(cmd, "lease", &p.lease)),
		MaxDeliveries: given(cmd, "max-deliveries", &p.maxDeliveries),
		Retry: api.RetryPatch{
			Strategy:  given(cmd, "retry-strategy", &p.strategy),
			BaseDelay: (*api.Duration)(given(cmd, "base-delay", &p.baseDelay)),
			MaxDelay:  (*api.Duration)(given(cmd, "max-delay", &p.maxDelay)),
			Jitter:    given(cmd, "jitter", &p.jitter),
		},
		NonRetryable:      given(cmd, "non-retryable", &p.nonRetryable),
		DeadLetterExpired: given(cmd, "dead-letter-expired", &p.deadLetterExpired),
		DedupWindow:       (*api.Duration)(given(cmd, "dedup-window", &p.dedupWindow)),
		PriorityAgeing:    (*api.Duration)(given(cmd, "priority-ageing", &p.priorityAgeing)),

		DeadLetterTo:        given(cmd, "dead-letter-to", &p.deadLetterTo),
		DeadLetterRetention: (*api.Duration)(given(cmd, "dead-letter-retention", &p.deadLetterRetention)),
		Circuit: api.CircuitPatch{
			Enabled:   given(cmd, "circuit", &p.circuit),
			CoolDown:  (*api.Duration)(given(cmd, "circuit-cool-down", &p.circuitCoolDown)),
			Threshold: given(cmd, "circuit-threshold", &p.circuitThreshold),
		},
		Retention: api.RetentionPatch{
			Age:      (*api.Duration)(given(cmd, "retention-age", &p.retentionAge)),
			Bytes:    given(cmd, "retention-bytes", &p.retentionBytes),
			Messages: given(cmd, "retention-messages", &p.retentionMessages),
		},
	}
}

// given is the value of a flag, or nil where the command line does not have it.
func given[T any](cmd *cobra.Command, name string, value *T) *T {
	if !cmd.Flags().Changed(name) {
		return nil
	}
	return value
}
