package client

import (
	"context"
	"time"

	"leat/api"
)

// ordered is the mode of queues whose routing keys have an order.
const ordered = "fifo"

// session works on one connection until it ends.
func (k *consumer) session(running context.Context, sock *socket) (began bool, err error) {
	stop := context.AfterFunc(running, sock.drop)
	data, err := sock.opening(api.FrameConsuming)
	if !stop() && err == nil {
		err = context.Cause(running)
	}
	if err != nil {
		return false, err
	}
	frame, err := decode[api.ConsumingFrame](data)
	if err != nil {
		return false, err
	}
	session := k.begin(frame.Mode == ordered)
	defer k.end()
	if k.config.OnConsuming != nil {
		k.config.OnConsuming(frame)
	}
	c := newClerk(k, sock, session, time.Duration(frame.Lease))
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.run(running)
	}()
	err = k.listen(sock, c)
	close(c.gone)
	<-written
	c.abandon()
	return true, err
}

// listen takes what comes until the connection ends.
func (k *consumer) listen(sock *socket, c *clerk) error {
	for {
		data, err := sock.read()
		if err != nil {
			return err
		}
		kind, err := frameType(data)
		if err != nil {
			return err
		}
		switch kind {
		case api.FrameDeliveries:
			frame, err := decode[api.DeliveriesFrame](data)
			if err != nil {
				return err
			}
			k.accept(frame.Deliveries, c.session)
		case api.FrameSettled:
			frame, err := decode[api.SettledFrame](data)
			if err != nil {
				return err
			}
			c.settled(frame)
		case api.FrameError:
			frame, err := sock.problemFrame(data)
			if err != nil {
				return err
			}
			if frame.Close == 0 && frame.ID != nil {
				c.refused(*frame.ID, frame.Problem)
			}
		default: // a heartbeat, or of a later version
		}
	}
}
