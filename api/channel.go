package api

import (
	"time"

	"leat/eventstore"
)

// ChannelSpec declares a channel. What is left out has its default.
type ChannelSpec struct {
	Kind   string      `json:"kind,omitempty" enum:"queue,stream,exchange" doc:"default queue"`
	Mode   string      `json:"mode,omitempty" enum:"standard,fifo" doc:"of a queue; default standard"`
	Type   string      `json:"type,omitempty" enum:"direct,fanout,topic,headers" doc:"of an exchange: the rule of its links"`
	Policy PolicyPatch `json:"policy,omitzero" doc:"of a queue; of a stream: dedupWindow and retention"`
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

	DeadLetterTo        *string      `json:"deadLetterTo,omitempty" doc:"a channel that gets copies of the messages that die; default \"\", none"`
	DeadLetterRetention *Duration    `json:"deadLetterRetention,omitempty" doc:"how long dead letters are kept; 0s, the default, is for ever"`
	Circuit             CircuitPatch `json:"circuit,omitzero" doc:"of a FIFO queue"`

	Retention RetentionPatch `json:"retention,omitzero" doc:"of a stream: what is beyond one of its bounds is trimmed, oldest first"`
}

// RetentionPatch is the part of the retention of a stream that somebody names.
type RetentionPatch struct {
	Age      *Duration `json:"age,omitempty" doc:"how long messages are kept; 0s, the default, is for ever"`
	Bytes    *int64    `json:"bytes,omitempty" minimum:"0" doc:"of payloads that are kept; 0, the default, is no bound"`
	Messages *int64    `json:"messages,omitempty" minimum:"0" doc:"how many are kept; 0, the default, is no bound"`
}

// CircuitPatch is the part of a circuit policy that somebody names.
type CircuitPatch struct {
	Enabled   *bool     `json:"enabled,omitempty" doc:"whether a dead letter sends the rest of its routing key to the dead letters; default true"`
	CoolDown  *Duration `json:"coolDown,omitempty" doc:"after which one message of the key is tried, of circuits that open from then on; 0s, the default, is never"`
	Threshold *int      `json:"threshold,omitempty" minimum:"1" maximum:"1000" doc:"dead letters of a key in a row that it takes; default 1"`
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
	*QueuePolicy
	DedupWindow Duration   `json:"dedupWindow"`
	Retention   *Retention `json:"retention,omitempty" doc:"of a stream"`
}

// Retention is what a stream keeps.
type Retention struct {
	Age      Duration `json:"age" doc:"0s is for ever"`
	Bytes    int64    `json:"bytes" doc:"of payloads; 0 is no bound"`
	Messages int64    `json:"messages" doc:"0 is no bound"`
}

// QueuePolicy is the part of a policy that only queues have.
type QueuePolicy struct {
	Lease             Duration `json:"lease" required:"false"`
	MaxDeliveries     int      `json:"maxDeliveries" required:"false"`
	Retry             Retry    `json:"retry" required:"false"`
	NonRetryable      []string `json:"nonRetryable" required:"false" nullable:"false"`
	DeadLetterExpired bool     `json:"deadLetterExpired" required:"false"`
	PriorityAgeing    Duration `json:"priorityAgeing" required:"false"`

	DeadLetterTo        string   `json:"deadLetterTo" required:"false" doc:"\"\" is none"`
	DeadLetterRetention Duration `json:"deadLetterRetention" required:"false" doc:"0s is for ever"`
	Circuit             *Circuit `json:"circuit,omitempty" doc:"of a FIFO queue"`
}

// Circuit is when a routing key of a FIFO queue is shut.
type Circuit struct {
	Enabled   bool     `json:"enabled"`
	CoolDown  Duration `json:"coolDown"`
	Threshold int      `json:"threshold"`
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
	Kind       string              `json:"kind" enum:"queue,stream,exchange"`
	Mode       string              `json:"mode,omitempty" enum:"standard,fifo" doc:"of a queue"`
	Type       string              `json:"type,omitempty" enum:"direct,fanout,topic,headers" doc:"of an exchange"`
	Policy     *Policy             `json:"policy,omitempty" doc:"of a queue or a stream"`
	DeclaredAt time.Time           `json:"declaredAt"`
	Epoch      eventstore.Position `json:"epoch" doc:"tells this channel from a deleted one of the same name"`
	Counts     *Counts             `json:"counts,omitempty" doc:"of a queue, in answers to GET"`
	Stream     *StreamStatus       `json:"stream,omitempty" doc:"of a stream, in answers to GET"`
}

// StreamStatus is what a stream keeps.
type StreamStatus struct {
	First    eventstore.Offset `json:"first" doc:"the first offset that the stream keeps"`
	End      eventstore.Offset `json:"end" doc:"that the next message will get"`
	Messages int64             `json:"messages"`
	Bytes    int64             `json:"bytes" doc:"of payloads"`
	Points   int64             `json:"points" doc:"replication points"`
}

// Counts says how many messages of a queue are in which state.
type Counts struct {
	Ready          int64    `json:"ready"`
	Delayed        int64    `json:"delayed"`
	InFlight       int64    `json:"inFlight"`
	Dead           int64    `json:"dead"`
	OpenCircuits   int64    `json:"openCircuits" doc:"routing keys of a FIFO queue whose circuit is not closed"`
	OldestReadyAge Duration `json:"oldestReadyAge" doc:"since the oldest ready message was published; 0s when none is ready"`
}

// ChannelList is all channels, by name.
type ChannelList struct {
	Channels []Channel `json:"channels" nullable:"false"`
}
