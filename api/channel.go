package api

import (
	"time"

	"leat/eventstore"
)

// ChannelSpec declares a channel. What is left out has its default.
type ChannelSpec struct {
	Kind   string      `json:"kind,omitempty" enum:"queue" doc:"default queue"`
	Mode   string      `json:"mode,omitempty" enum:"standard,fifo" doc:"default standard"`
	Policy PolicyPatch `json:"policy,omitzero"`
}

// ChannelPatch changes a channel. What is left out stays.
type ChannelPatch struct {
	Policy PolicyPatch `json:"policy,omitzero"`
}

// PolicyPatch is the part of a policy that somebody names.
type PolicyPatch struct {
	Lease             *Duration  `json:"lease,omitempty" doc:"how long a consumer may hold a message that it polled without saying; default 30s"`
	MaxDeliveries     *int       `json:"maxDeliveries,omitempty" minimum:"1" doc:"after so many failed deliveries a message is dead; default 5"`
	Retry             RetryPatch `json:"retry,omitzero"`
	NonRetryable      *[]string  `json:"nonRetryable,omitempty" nullable:"false" doc:"error classes that make a message dead at once"`
	DeadLetterExpired *bool      `json:"deadLetterExpired,omitempty" doc:"whether expired messages become dead letters; default false"`
	DedupWindow       *Duration  `json:"dedupWindow,omitempty" doc:"how long a dedupId is remembered; default 10m"`
	PriorityAgeing    *Duration  `json:"priorityAgeing,omitempty" doc:"how much waiting is worth one step of priority; 0s, the default, is strict priority"`
}

// RetryPatch is the part of a retry policy that somebody names.
type RetryPatch struct {
	Strategy  *string   `json:"strategy,omitempty" enum:"exponential,fixed" doc:"default exponential"`
	BaseDelay *Duration `json:"baseDelay,omitempty" doc:"before the second delivery; default 1s"`
	MaxDelay  *Duration `json:"maxDelay,omitempty" doc:"bound of the delay; default 30s"`
	Jitter    *float64  `json:"jitter,omitempty" minimum:"0" maximum:"1" doc:"how much of the delay is left to chance; default 0.2"`
}

// Policy is how a channel treats its messages.
type Policy struct {
	Lease             Duration `json:"lease"`
	MaxDeliveries     int      `json:"maxDeliveries"`
	Retry             Retry    `json:"retry"`
	NonRetryable      []string `json:"nonRetryable" nullable:"false"`
	DeadLetterExpired bool     `json:"deadLetterExpired"`
	DedupWindow       Duration `json:"dedupWindow"`
	PriorityAgeing    Duration `json:"priorityAgeing"`
}

// Retry is when a failed message is delivered again.
type Retry struct {
	Strategy  string   `json:"strategy" enum:"exponential,fixed"`
	BaseDelay Duration `json:"baseDelay"`
	MaxDelay  Duration `json:"maxDelay"`
	Jitter    float64  `json:"jitter"`
}

// Channel is a declared channel.
type Channel struct {
	Name       string              `json:"name"`
	Kind       string              `json:"kind" enum:"queue"`
	Mode       string              `json:"mode" enum:"standard,fifo"`
	Policy     Policy              `json:"policy"`
	DeclaredAt time.Time           `json:"declaredAt"`
	Epoch      eventstore.Position `json:"epoch" doc:"tells this channel from a deleted one of the same name"`
	Counts     *Counts             `json:"counts,omitempty" doc:"in answers to GET"`
}

// Counts says how many messages of a queue are in which state.
type Counts struct {
	Ready          int64    `json:"ready"`
	Delayed        int64    `json:"delayed"`
	InFlight       int64    `json:"inFlight"`
	Dead           int64    `json:"dead"`
	OldestReadyAge Duration `json:"oldestReadyAge" doc:"since the oldest ready message was published; 0s when none is ready"`
}

// ChannelList is all channels, by name.
type ChannelList struct {
	Channels []Channel `json:"channels" nullable:"false"`
}
