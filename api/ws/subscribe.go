package ws

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"leat/api"
	"leat/eventstore"
)

// Subscribe begins a subscription on a WebSocket, which lasts when it has
// returned; done is called at the end. An error was told to nobody: the caller
// answers it, and done is not called.
func (s *Server) Subscribe(w http.ResponseWriter, r *http.Request, request eventstore.SubscribeRequest, done func(Summary)) error {
	return s.serve(w, r, &subscriber{streams: s.config.Streams, request: request}, done)
}

type subscriber struct {
	streams api.Streams
	request eventstore.SubscribeRequest
	begun   atomic.Pointer[begun] // nil before the subscribed frame
	commits committer
}

// begun is a subscription, and the epoch of its offsets.
type begun struct {
	api.Subscription
	epoch eventstore.Position
}

func (h *subscriber) run(ctx context.Context, s *session) error {
	subscription, err := h.streams.Subscribe(ctx, h.request)
	if err != nil {
		return err
	}
	defer subscription.Close()
	at := subscription.Subscribed()
	h.begun.Store(&begun{subscription, at.Next.Epoch})
	if err := s.send(ctx, api.SubscribedFrameOf(at)); err != nil {
		return err
	}
	for {
		batch, err := subscription.Next(ctx, s.server.config.Heartbeat)
		if err != nil {
			return err
		}
		if err := sendBatch(ctx, s, &batch); err != nil {
			return err
		}
	}
}

// sendBatch sends what a subscription handed over.
func sendBatch(ctx context.Context, s *session, batch *eventstore.StreamBatch) error {
	if batch.Assigned {
		partitions := append([]int{}, batch.Partitions...)
		if err := s.send(ctx, api.AssignedFrame{Type: api.FrameAssigned, Partitions: partitions}); err != nil {
			return err
		}
	}
	if len(batch.Messages) == 0 && !batch.Assigned {
		return s.send(ctx, api.HeartbeatFrame{Type: api.FrameHeartbeat, Next: &batch.Next.Offset, End: &batch.End})
	}
	for rest := batch.Messages; len(rest) > 0; {
		n := fit(rest)
		next := batch.Next.Offset
		if n < len(rest) {
			next = rest[n-1].Offset + 1
		}
		if err := sendFrame(ctx, s, rest[:n], next); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// maxFrame bounds a frame of many messages, so that a slow reader gets on with
// it; one message may be larger.
const maxFrame = 256 << 10

// fit is how many messages go into one frame.
func fit(messages []*eventstore.StreamMessage) int {
	size := 0
	for i, m := range messages {
		size += len(m.Encoded(api.EncodeStreamMessage))
		if size > maxFrame && i > 0 {
			return i
		}
	}
	return len(messages)
}

func sendFrame(ctx context.Context, s *session, messages []*eventstore.StreamMessage, next eventstore.Offset) error {
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	*buffer = api.AppendMessagesFrame((*buffer)[:0], messages, next)
	return s.sendMessages(ctx, *buffer, len(messages))
}

func (h *subscriber) receive(ctx context.Context, s *session, kind string, frame []byte) error {
	switch kind {
	case api.FrameHeartbeat:
		return decode(frame, &struct {
			Type string `json:"type"`
		}{})
	case api.FrameAck:
		var ack struct {
			Type   string             `json:"type"`
			Offset *eventstore.Offset `json:"offset"`
		}
		if err := decode(frame, &ack); err != nil {
			return err
		}
		offset, err := offsetOf(ack.Offset)
		if err != nil {
			return err
		}
		return h.ack(ctx, s, offset)
	case api.FrameCommit:
		var commit struct {
			Type   string               `json:"type"`
			Offset *eventstore.Offset   `json:"offset"`
			Epoch  *eventstore.Position `json:"epoch"`
		}
		if err := decode(frame, &commit); err != nil {
			return err
		}
		offset, err := offsetOf(commit.Offset)
		if err != nil {
			return err
		}
		return h.commit(ctx, s, offset, commit.Epoch)
	default:
		return unknownType(kind, api.FrameAck, api.FrameCommit, api.FrameHeartbeat)
	}
}

var errEarly = eventstore.NewError(eventstore.InvalidRequest, "The frame came before the subscription began.")

func (h *subscriber) ack(ctx context.Context, s *session, offset eventstore.Offset) error {
	subscription := h.begun.Load()
	if subscription == nil {
		return errEarly
	}
	if err := subscription.Ack(offset); err != nil {
		return refuse(ctx, s, offset, err)
	}
	return nil
}

func (h *subscriber) commit(ctx context.Context, s *session, offset eventstore.Offset, epoch *eventstore.Position) error {
	subscription := h.begun.Load()
	if subscription == nil {
		return errEarly
	}
	last := eventstore.StreamPosition{Epoch: subscription.epoch, Offset: offset}
	if epoch != nil {
		last.Epoch = *epoch
	}
	if last.Epoch <= 0 {
		return invalid("epoch", "must be greater than 0")
	}
	return h.commits.add(ctx, s, subscription, last)
}

// offsetOf checks the offset of a frame.
func offsetOf(given *eventstore.Offset) (eventstore.Offset, error) {
	switch {
	case given == nil:
		return 0, invalid("offset", "is missing")
	case *given < 0:
		return 0, invalid("offset", "must not be negative")
	}
	return *given, nil
}

// refuse tells that an ack or a commit is not possible; the connection goes on.
// What is no refusal ends it.
func refuse(ctx context.Context, s *session, offset eventstore.Offset, err error) error {
	if _, ok := errors.AsType[*eventstore.Error](eventstore.FromPg(err)); !ok {
		return err
	}
	p, _ := api.ProblemOf(err)
	p.Instance, p.RequestID = s.path, s.id
	return s.send(ctx, api.ErrorFrame{Type: api.FrameError, Problem: p, Offset: &offset})
}
