package commands

import (
	"time"

	"leat/eventstore"
)

// publication is a publish on its way: what is settled and what is pending.
type publication struct {
	channel     channel
	actor       string
	messages    []Message
	partial     bool
	outcomes    []Published
	pending     []int // indexes of messages that have no outcome yet
	items       int   // of pending
	weight      int
	deliverable bool // some message is not delayed
	gone        bool // the channel's id was refused
	position    eventstore.Position
	refused     faults // why the request was refused
}

// status of a message, as leat.publish_many answers it.
type publishStatus int16

const (
	stored publishStatus = iota
	duplicate
	dedupConflict
	keyHeld
	channelGone
	refusedWithOthers
	priorityOnFIFO
	timedInStream
)

// publishAnswer is what one transaction did with the pending messages.
type publishAnswer struct {
	ids      []eventstore.MessageID
	statuses []publishStatus      // nil: all stored
	dead     []bool               // nil: none
	routedTo [][]routed           // nil: none
	offsets  []*eventstore.Offset // nil: none
	stored   bool                 // at least one
}

// routed is a channel that got a copy.
type routed struct {
	id   eventstore.ChannelID
	name string
	dead bool // it went to the dead letters
}

func newPublication(ch channel, req PublishRequest) *publication {
	return &publication{
		channel:  ch,
		actor:    req.Actor,
		messages: req.Messages,
		partial:  req.Partial,
		outcomes: make([]Published, len(req.Messages)),
	}
}

// refuse settles a message that was not stored.
func (p *publication) refuse(i int, e eventstore.Error) {
	p.outcomes[i].Err = &e
	if !p.partial && !p.refused.full() {
		p.refused.list = append(p.refused.list, e)
	}
}

// addPending makes everything pending that was not refused.
func (p *publication) addPending() {
	now := time.Now()
	p.pending = make([]int, 0, len(p.messages))
	for i := range p.messages {
		if p.outcomes[i].Err != nil {
			continue
		}
		p.pending = append(p.pending, i)
		p.weight += p.messages[i].weight()
		p.deliverable = p.deliverable || !p.messages[i].waits(now)
	}
	p.items = len(p.pending)
}

// settle takes over what a transaction did.
func (p *publication) settle(a publishAnswer) {
	asked, still := p.pending, p.pending[:0:0]
	for n, i := range asked {
		status := stored
		if a.statuses != nil {
			status = a.statuses[n]
		}
		if !p.settleOne(i, status, a.ids[n]) {
			still = append(still, i)
			continue
		}
		if a.dead != nil {
			p.outcomes[i].DeadLettered = a.dead[n]
		}
		if a.offsets != nil {
			p.outcomes[i].Offset = a.offsets[n]
		}
		if a.routedTo != nil {
			for _, to := range a.routedTo[n] {
				p.outcomes[i].RoutedTo = append(p.outcomes[i].RoutedTo, to.name)
				if to.dead {
					p.outcomes[i].DeadLetteredIn = append(p.outcomes[i].DeadLetteredIn, to.name)
				}
			}
		}
	}
	if p.refused.err() != nil {
		still = nil
	} else if !p.partial && len(still) > 0 {
		still = asked // nothing of the request was stored
	}
	p.pending, p.items = still, len(still)
}

// settleOne reports whether the message has its outcome.
func (p *publication) settleOne(i int, status publishStatus, id eventstore.MessageID) bool {
	switch status {
	case stored, duplicate:
		p.outcomes[i] = Published{MessageID: id, OriginMessageID: id, Duplicate: status == duplicate}
		p.position = max(p.position, eventstore.Position(id))
		return true
	case dedupConflict:
		p.refuse(i, eventstore.Error{
			Code: eventstore.DedupConflict, Index: i, Field: "dedupId",
			Message: "was used for message " + id.String() + ", which has other content",
		})
		p.outcomes[i].MessageID, p.outcomes[i].OriginMessageID = id, id
		return true
	case priorityOnFIFO:
		p.refuse(i, eventstore.Error{
			Code: eventstore.InvalidField, Index: i, Field: "priority", Message: "must be 0 in a FIFO queue",
		})
		return true
	case timedInStream:
		p.refuse(i, eventstore.Error{
			Code: eventstore.InvalidField, Index: i, Field: p.messages[i].notOfStreams(), Message: notInStream,
		})
		return true
	case channelGone:
		p.gone = true
		return false
	case keyHeld, refusedWithOthers:
		return false
	}
	return false
}

// giveUp refuses what is still pending as busy.
func (p *publication) giveUp() {
	for _, i := range p.pending {
		p.refuse(i, eventstore.Error{
			Code: eventstore.Busy, Index: i, RetryAfter: time.Second,
			Message: "An open transaction holds its routing key, its stream or its dedupId.",
		})
	}
	p.pending = nil
}

func (p *publication) result() (PublishResult, error) {
	if err := p.refused.err(); err != nil {
		return PublishResult{}, err
	}
	if p.gone {
		return PublishResult{}, channelNotFound(p.channel.name)
	}
	return PublishResult{Messages: p.outcomes, Position: p.position}, nil
}
