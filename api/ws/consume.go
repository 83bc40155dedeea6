package ws

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"leat/api"
	"leat/api/internal/wire"
	"leat/commands"
	"leat/eventstore"
)

// Queues is what push consumers need of *commands.Broker.
type Queues interface {
	Consume(ctx context.Context, request commands.ConsumeRequest) (*commands.Consumer, error)
}

// Consume begins to push on a WebSocket, which lasts when it has returned; done is
// called at the end. An error was told to nobody: the caller answers it, and done
// is not called.
func (s *Server) Consume(w http.ResponseWriter, r *http.Request, request commands.ConsumeRequest, done func(Summary)) error {
	return s.serve(w, r, &pusher{queues: s.config.Queues, request: request}, done)
}

// pusher pushes deliveries and settles them.
type pusher struct {
	queues  Queues
	request commands.ConsumeRequest
	begun   atomic.Pointer[consumer] // nil before the consuming frame
}

// consumer is a consumer with its settlements under way, a line for each type of
// frames.
type consumer struct {
	*commands.Consumer
	acks, nacks, extends, releases *settler
	cut                            context.CancelFunc // of the settlements
}

func newConsumer(ctx context.Context, opened *commands.Consumer) *consumer {
	ctx, cut := context.WithCancel(context.WithoutCancel(ctx))
	line := func(atOnce int) *settler { return &settler{context: ctx, atOnce: atOnce} }
	// Only acks share transactions.
	return &consumer{Consumer: opened, acks: line(64), nacks: line(1), extends: line(1), releases: line(1), cut: cut}
}

// close finishes what came, if that does not take long, and releases the rest.
func (c *consumer) close() {
	patience := time.AfterFunc(settleWithin, c.cut)
	for _, line := range []*settler{c.acks, c.nacks, c.extends, c.releases} {
		line.finish()
	}
	patience.Stop()
	c.cut()
	c.Close()
}

// settleWithin is how long the settlements that came before the end of a
// connection may take, before what is outstanding is released.
const settleWithin = 5 * time.Second

func (h *pusher) run(ctx context.Context, s *session) error {
	opened, err := h.queues.Consume(ctx, h.request)
	if err != nil {
		return err
	}
	c := newConsumer(ctx, opened)
	defer c.close()
	h.begun.Store(c)
	if err := s.send(ctx, h.consuming(c)); err != nil {
		return err
	}
	for {
		deliveries, err := c.Next(ctx, s.server.config.Heartbeat)
		switch {
		case err != nil:
			err = h.trouble(ctx, s, err)
		case len(deliveries) == 0:
			err = s.send(ctx, api.HeartbeatFrame{Type: api.FrameHeartbeat})
		default:
			err = sendDeliveries(ctx, s, deliveries)
		}
		if err != nil {
			return err
		}
	}
}

func (h *pusher) consuming(c *consumer) api.ConsumingFrame {
	mode := commands.Standard
	if c.FIFO() {
		mode = commands.FIFO
	}
	return api.ConsumingFrame{
		Type: api.FrameConsuming, Queue: h.request.Queue, Mode: mode, Prefetch: h.request.Prefetch,
		Lease: api.Duration(c.Lease()), Consumer: h.request.Consumer,
	}
}

// trouble tells an error that passes, and answers one that does not.
func (h *pusher) trouble(ctx context.Context, s *session, err error) error {
	p, _ := api.ProblemOf(err)
	if ctx.Err() != nil || api.CloseCodeOf(p.Code) != api.CloseNotReady {
		return err
	}
	return s.send(ctx, api.ErrorFrame{Type: api.FrameError, Problem: s.named(p)})
}

// sendDeliveries sends deliveries in frames that are not too large.
func sendDeliveries(ctx context.Context, s *session, deliveries []commands.Delivery) error {
	for len(deliveries) > 0 {
		n, size := 0, 0
		for n < len(deliveries) && (n == 0 || size+len(deliveries[n].Payload) <= maxFrame) {
			size += len(deliveries[n].Payload) + deliveryOverhead
			n++
		}
		buffer := takeBuffer()
		*buffer = api.DeliveriesFrame{Type: api.FrameDeliveries, Deliveries: wire.Deliveries(deliveries[:n])}.AppendJSON((*buffer)[:0])
		err := s.sendMessages(ctx, *buffer, n)
		giveBuffer(buffer)
		if err != nil {
			return err
		}
		deliveries = deliveries[n:]
	}
	return nil
}

// deliveryOverhead is about what a delivery takes beside its payload.
const deliveryOverhead = 300

func (h *pusher) receive(ctx context.Context, s *session, kind string, data []byte) error {
	c := h.begun.Load()
	if c == nil {
		return eventstore.NewError(eventstore.InvalidRequest, "The frame came before the consumer began.")
	}
	switch kind {
	case api.FrameHeartbeat:
		return decode(data, &struct {
			Type string `json:"type"`
		}{})
	case api.FrameAck:
		var f api.SettleFrame
		if err := decode(data, &f); err != nil {
			return err
		}
		return c.acks.add(ctx, s, settling{f.ID, len(f.Receipts), func(ctx context.Context) (api.SettleResult, error) {
			result, err := c.Ack(ctx, f.Receipts)
			return wire.Settled(result), err
		}})
	case api.FrameRelease:
		var f api.SettleFrame
		if err := decode(data, &f); err != nil {
			return err
		}
		return c.releases.add(ctx, s, settling{f.ID, len(f.Receipts), func(ctx context.Context) (api.SettleResult, error) {
			result, err := c.Release(ctx, f.Receipts)
			return wire.Settled(result), err
		}})
	case api.FrameNack:
		return c.nack(ctx, s, data)
	case api.FrameExtend:
		return c.extend(ctx, s, data)
	default:
		return unknownType(kind, api.FrameAck, api.FrameNack, api.FrameExtend, api.FrameRelease, api.FrameHeartbeat)
	}
}

func (c *consumer) nack(ctx context.Context, s *session, data []byte) error {
	var f api.NackFrame
	if err := decode(data, &f); err != nil {
		return err
	}
	request := commands.NackRequest{
		SettleRequest: commands.SettleRequest{Receipts: f.Receipts},
		Action:        f.Action,
		Delay:         (*time.Duration)(f.Delay),
		Reason:        f.Reason,
		ErrorClass:    f.ErrorClass,
	}
	return c.nacks.add(ctx, s, settling{f.ID, len(f.Receipts), func(ctx context.Context) (api.SettleResult, error) {
		result, err := c.Nack(ctx, request)
		return wire.Settled(result), err
	}})
}

func (c *consumer) extend(ctx context.Context, s *session, data []byte) error {
	var f api.ExtendFrame
	if err := decode(data, &f); err != nil {
		return err
	}
	return c.extends.add(ctx, s, settling{f.ID, len(f.Receipts), func(ctx context.Context) (api.SettleResult, error) {
		lease, err := wire.Lease(f.Lease)
		if err != nil {
			return api.SettleResult{}, err
		}
		result, until, err := c.Extend(ctx, f.Receipts, lease)
		return wire.Extended(result, until), err
	}})
}
