package commands

import (
	"encoding/json"
	"fmt"
	"time"
)

// Retry strategies.
const (
	Exponential = "exponential" // baseDelay, doubled at each attempt, up to maxDelay
	Fixed       = "fixed"       // baseDelay
)

// Policy says how a queue treats its messages.
type Policy struct {
	Lease             time.Duration // of a delivery, unless the poll names one
	MaxDeliveries     int           // attempts before a message is dead-lettered
	Retry             Retry
	NonRetryable      []string      // error classes that are dead-lettered at once
	DeadLetterExpired bool          // whether expired messages are dead-lettered
	DedupWindow       time.Duration // how long a dedupId is remembered
	PriorityAgeing    time.Duration // a message gains one priority level each; 0: never
	// DeadLetterTo is a channel that gets copies of the messages that die, "" if none.
	DeadLetterTo        string
	DeadLetterRetention time.Duration // dead letters that are older are removed; 0: never
	Circuit             Circuit       // of a FIFO queue
	Retention           Retention     // of a stream
}

// Retention says which messages a stream keeps: those within every bound. What is
// beyond one is trimmed soon, oldest first.
type Retention struct {
	Age      time.Duration // 0: no bound
	Bytes    int64         // of payloads; 0: no bound
	Messages int64         // 0: no bound
}

// Circuit says when a routing key of a FIFO queue is shut: then all of it goes
// to the dead letters.
type Circuit struct {
	Enabled   bool
	CoolDown  time.Duration // after which one message is tried; 0: never
	Threshold int           // after so many dead letters of a key in a row
}

// Retry says when a failed message is delivered again.
type Retry struct {
	Strategy  string // Exponential or Fixed
	BaseDelay time.Duration
	MaxDelay  time.Duration
	Jitter    float64 // 0 to 1: the share of the delay that is random
}

// DefaultPolicy is the policy of a standard queue that was declared without one.
func DefaultPolicy() Policy {
	return Policy{
		Lease:         30 * time.Second,
		MaxDeliveries: 5,
		Retry:         Retry{Strategy: Exponential, BaseDelay: time.Second, MaxDelay: 30 * time.Second, Jitter: 0.2},
		NonRetryable:  []string{},
		DedupWindow:   10 * time.Minute,
	}
}

// PolicyPatch names the settings that differ; nil leaves one as it is, or at
// its default.
type PolicyPatch struct {
	Lease             *time.Duration
	MaxDeliveries     *int
	Retry             RetryPatch
	NonRetryable      *[]string
	DeadLetterExpired *bool
	DedupWindow       *time.Duration
	PriorityAgeing    *time.Duration

	DeadLetterTo        *string // "" is none
	DeadLetterRetention *time.Duration
	Circuit             CircuitPatch   // of a FIFO queue only
	Retention           RetentionPatch // of a stream, which has but this and DedupWindow
}

// RetentionPatch is the part of a PolicyPatch about Retention.
type RetentionPatch struct {
	Age      *time.Duration
	Bytes    *int64
	Messages *int64
}

// CircuitPatch is the part of a PolicyPatch about Circuit.
type CircuitPatch struct {
	Enabled   *bool
	CoolDown  *time.Duration
	Threshold *int
}

// RetryPatch is the part of a PolicyPatch about Retry.
type RetryPatch struct {
	Strategy  *string
	BaseDelay *time.Duration
	MaxDelay  *time.Duration
	Jitter    *float64
}

// Patch is the patch that sets every setting of a queue to that of the policy.
func (p Policy) Patch() PolicyPatch {
	patch := PolicyPatch{
		Lease:         &p.Lease,
		MaxDeliveries: &p.MaxDeliveries,
		Retry: RetryPatch{
			Strategy: &p.Retry.Strategy, BaseDelay: &p.Retry.BaseDelay,
			MaxDelay: &p.Retry.MaxDelay, Jitter: &p.Retry.Jitter,
		},
		NonRetryable:      &p.NonRetryable,
		DeadLetterExpired: &p.DeadLetterExpired,
		DedupWindow:       &p.DedupWindow,
		PriorityAgeing:    &p.PriorityAgeing,

		DeadLetterTo:        &p.DeadLetterTo,
		DeadLetterRetention: &p.DeadLetterRetention,
	}
	if p.Circuit != (Circuit{}) { // that of a standard queue
		patch.Circuit = CircuitPatch{
			Enabled: &p.Circuit.Enabled, CoolDown: &p.Circuit.CoolDown, Threshold: &p.Circuit.Threshold,
		}
	}
	return patch
}

// fieldOf maps columns of leat.channels to the names that clients use.
var fieldOf = map[string]string{
	"lease":               "lease",
	"max_deliveries":      "maxDeliveries",
	"retry_strategy":      "retry.strategy",
	"base_delay":          "retry.baseDelay",
	"max_delay":           "retry.maxDelay",
	"jitter":              "retry.jitter",
	"non_retryable":       "nonRetryable",
	"dead_letter_expired": "deadLetterExpired",
	"dedup_window":        "dedupWindow",
	"priority_ageing":     "priorityAgeing",

	"dead_letter_to":        "deadLetterTo",
	"dead_letter_retention": "deadLetterRetention",
	"circuit":               "circuit.enabled",
	"circuit_cool_down":     "circuit.coolDown",
	"circuit_threshold":     "circuit.threshold",

	"retention_age":      "retention.age",
	"retention_bytes":    "retention.bytes",
	"retention_messages": "retention.messages",
}

// columns is the patch as leat.declare_channel and leat.alter_channel take it.
func (p PolicyPatch) columns() (string, error) {
	set := map[string]any{}
	put(set, "lease", p.Lease, interval)
	put(set, "max_deliveries", p.MaxDeliveries, same)
	put(set, "retry_strategy", p.Retry.Strategy, same)
	put(set, "base_delay", p.Retry.BaseDelay, interval)
	put(set, "max_delay", p.Retry.MaxDelay, interval)
	put(set, "jitter", p.Retry.Jitter, same)
	put(set, "non_retryable", p.NonRetryable, list)
	put(set, "dead_letter_expired", p.DeadLetterExpired, same)
	put(set, "dedup_window", p.DedupWindow, interval)
	put(set, "priority_ageing", p.PriorityAgeing, interval)
	put(set, "dead_letter_to", p.DeadLetterTo, same)
	put(set, "dead_letter_retention", p.DeadLetterRetention, interval)
	put(set, "circuit", p.Circuit.Enabled, same)
	put(set, "circuit_cool_down", p.Circuit.CoolDown, interval)
	put(set, "circuit_threshold", p.Circuit.Threshold, same)
	put(set, "retention_age", p.Retention.Age, interval)
	put(set, "retention_bytes", p.Retention.Bytes, same)
	put(set, "retention_messages", p.Retention.Messages, same)
	text, err := json.Marshal(set)
	return string(text), err
}

func put[T any](set map[string]any, column string, value *T, as func(T) any) {
	if value != nil {
		set[column] = as(*value)
	}
}

func same[T any](v T) any { return v }

func interval(d time.Duration) any { return fmt.Sprintf("%.6f seconds", d.Seconds()) }

func list(values []string) any {
	if values == nil {
		return []string{}
	}
	return values
}

// check notes what is out of range.
func (p PolicyPatch) check(f *faults, limits Limits) {
	check(p.Lease, func(d time.Duration) { f.between(-1, "lease", d, limits.LeaseMin, limits.LeaseMax) })
	check(p.MaxDeliveries, func(n int) {
		if n < 1 || n > maxDelivered {
			f.invalid(-1, "maxDeliveries", "must be from 1 to %d", maxDelivered)
		}
	})
	check(p.Retry.Strategy, func(s string) {
		if s != Exponential && s != Fixed {
			f.invalid(-1, "retry.strategy", "must be %s or %s", Exponential, Fixed)
		}
	})
	check(p.Retry.BaseDelay, func(d time.Duration) { f.between(-1, "retry.baseDelay", d, 0, maxAhead) })
	check(p.Retry.MaxDelay, func(d time.Duration) { f.between(-1, "retry.maxDelay", d, 0, maxAhead) })
	check(p.Retry.Jitter, func(j float64) {
		if !(j >= 0 && j <= 1) { // also NaN
			f.invalid(-1, "retry.jitter", "must be from 0 to 1")
		}
	})
	check(p.NonRetryable, func(classes []string) {
		if len(classes) > 100 {
			f.invalid(-1, "nonRetryable", "has more than 100 error classes")
		}
		for _, c := range classes {
			f.text(-1, "nonRetryable", c, maxLabel)
		}
	})
	check(p.DedupWindow, func(d time.Duration) { f.between(-1, "dedupWindow", d, 0, maxAhead) })
	check(p.PriorityAgeing, func(d time.Duration) { f.between(-1, "priorityAgeing", d, 0, maxAhead) })
	check(p.DeadLetterTo, func(name string) {
		if name != "" {
			f.name("deadLetterTo", name)
		}
	})
	check(p.DeadLetterRetention, func(d time.Duration) { f.between(-1, "deadLetterRetention", d, 0, maxAhead) })
	check(p.Circuit.CoolDown, func(d time.Duration) { f.between(-1, "circuit.coolDown", d, 0, maxAhead) })
	check(p.Circuit.Threshold, func(n int) {
		if n < 1 || n > maxThreshold {
			f.invalid(-1, "circuit.threshold", "must be from 1 to %d", maxThreshold)
		}
	})
	p.Retention.check(f)
}

func (p RetentionPatch) check(f *faults) {
	check(p.Age, func(d time.Duration) { f.between(-1, "retention.age", d, 0, maxAhead) })
	notNegative := func(field string) func(int64) {
		return func(n int64) {
			if n < 0 {
				f.invalid(-1, field, "must not be negative; 0 is no bound")
			}
		}
	}
	check(p.Bytes, notNegative("retention.bytes"))
	check(p.Messages, notNegative("retention.messages"))
}

// notOfStreams are the settings that a stream does not have.
func (p PolicyPatch) notOfStreams() []string {
	var fields []string
	for _, set := range []struct {
		field string
		given bool
	}{
		{"lease", p.Lease != nil},
		{"maxDeliveries", p.MaxDeliveries != nil},
		{"retry", p.Retry != RetryPatch{}},
		{"nonRetryable", p.NonRetryable != nil},
		{"deadLetterExpired", p.DeadLetterExpired != nil},
		{"priorityAgeing", p.PriorityAgeing != nil},
		{"deadLetterTo", p.DeadLetterTo != nil},
		{"deadLetterRetention", p.DeadLetterRetention != nil},
		{"circuit", p.Circuit != CircuitPatch{}},
	} {
		if set.given {
			fields = append(fields, set.field)
		}
	}
	return fields
}

func check[T any](value *T, rule func(T)) {
	if value != nil {
		rule(*value)
	}
}
