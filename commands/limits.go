package commands

import "time"

// Limits bound what one request may ask for.
type Limits struct {
	Payload         int           // bytes of one payload; default 1 MiB
	Headers         int           // bytes of one message's headers; default 32 KiB
	RequestBytes    int           // bytes of all messages of a request; default 16 MiB
	RequestMessages int           // messages of a request; default 10,000
	Receipts        int           // receipts of a request; default 10,000
	PollMax         int           // messages of one poll; default 1,000
	PollWait        time.Duration // of one poll; default 60 s
	RoutingKeys     int           // of one poll's filter; default 100
	LeaseMin        time.Duration // default 100 ms
	LeaseMax        time.Duration // default 24 h
	DeadLetterIDs   int           // of one recovery or purge; default 1,000
	DeadLetterPage  int           // dead letters of one transaction of a recovery or purge, about; default 100,000
	PublishWait     time.Duration // how long a publish tries while a key is held; default 30 s
}

// DefaultLimits are the limits that a zero Config.Limits stands for.
func DefaultLimits() Limits {
	return Limits{
		Payload:         1 << 20,
		Headers:         32 << 10,
		RequestBytes:    16 << 20,
		RequestMessages: 10_000,
		Receipts:        10_000,
		PollMax:         1000,
		PollWait:        60 * time.Second,
		RoutingKeys:     100,
		LeaseMin:        100 * time.Millisecond,
		LeaseMax:        24 * time.Hour,
		DeadLetterIDs:   1000,
		DeadLetterPage:  100_000,
		PublishWait:     30 * time.Second,
	}
}

// Bounds that no setting changes.
const (
	maxName      = 255 // bytes of a channel's name
	maxKey       = 255 // bytes of a routing key
	maxLabel     = 255 // bytes of an actor, consumer, dedup id, error class, content type
	maxReason    = 1024
	maxPriority  = 9
	maxPayload   = 64 << 20
	maxAhead     = 10 * 365 * 24 * time.Hour // how far ahead a message may be due
	maxBehind    = 24 * time.Hour            // how old a deliverAt may be
	maxFaults    = 100                       // bad items that one error lists
	maxDelivered = 1000                      // of a policy's maxDeliveries
	maxThreshold = 1000                      // of a policy's circuit.threshold
	maxRate      = 1_000_000                 // of a replay, messages per second
)

// withDefaults fills what is 0.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ have, def *int }{
		{&l.Payload, &d.Payload},
		{&l.Headers, &d.Headers},
		{&l.RequestBytes, &d.RequestBytes},
		{&l.RequestMessages, &d.RequestMessages},
		{&l.Receipts, &d.Receipts},
		{&l.PollMax, &d.PollMax},
		{&l.RoutingKeys, &d.RoutingKeys},
		{&l.DeadLetterIDs, &d.DeadLetterIDs},
		{&l.DeadLetterPage, &d.DeadLetterPage},
	} {
		if *f.have == 0 {
			*f.have = *f.def
		}
	}
	for _, f := range []struct{ have, def *time.Duration }{
		{&l.PollWait, &d.PollWait},
		{&l.LeaseMin, &d.LeaseMin},
		{&l.LeaseMax, &d.LeaseMax},
		{&l.PublishWait, &d.PublishWait},
	} {
		if *f.have == 0 {
			*f.have = *f.def
		}
	}
	return l
}
