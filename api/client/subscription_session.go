package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"leat/api"
	"leat/eventstore"
)

// session works on one connection until it ends.
func (s *subscription) session(running context.Context, sock *socket) (began bool, err error) {
	stop := context.AfterFunc(running, sock.drop)
	data, err := sock.opening(api.FrameSubscribed)
	if !stop() && err == nil {
		err = context.Cause(running)
	}
	if err != nil {
		return false, err
	}
	frame, err := decode[api.SubscribedFrame](data)
	if err != nil {
		return false, err
	}
	if err := s.countPartitions(running, &frame); err != nil {
		return false, err
	}
	if err := s.begin(&frame); err != nil {
		return false, err
	}
	if s.config.OnSubscribed != nil {
		s.config.OnSubscribed(frame)
	}
	if s.config.OnAssigned != nil && frame.Partitions != nil {
		s.config.OnAssigned(frame.Partitions)
	}
	p := newPen(s, sock, &frame)
	written := make(chan struct{})
	go func() {
		defer close(written)
		p.run(running)
	}()
	err = s.listen(sock, p)
	if problem, ok := errors.AsType[*api.Problem](err); ok && problem.Code == eventstore.PointMoved {
		s.movedAway()
	}
	close(p.gone)
	<-written
	return true, err
}

// movedAway takes note that the point was reset: what comes next is from there.
func (s *subscription) movedAway() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = true
}

// countPartitions asks how many partitions a group has, if nobody said it.
func (s *subscription) countPartitions(ctx context.Context, frame *api.SubscribedFrame) error {
	if frame.Partitions == nil || s.partitions > 0 {
		return nil
	}
	point, err := call[api.Point](ctx, s.client, request{
		method: http.MethodGet, path: []string{"v1", "streams", s.stream, "points", s.config.Point},
	})
	if err != nil {
		return fmt.Errorf("ask for the partitions of %s: %w", s.config.Point, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions = uint64(len(point.Partitions))
	return nil
}

// messagesPrefix begins the frames that come most.
var messagesPrefix = []byte(`{"type":"messages",`)

// listen takes what comes until the connection ends.
func (s *subscription) listen(sock *socket, p *pen) error {
	for {
		data, err := sock.read()
		if err != nil {
			return err
		}
		kind := api.FrameMessages
		if !bytes.HasPrefix(data, messagesPrefix) {
			if kind, err = frameType(data); err != nil {
				return err
			}
		}
		if err := s.hear(sock, p, kind, data); err != nil {
			return err
		}
	}
}

func (s *subscription) hear(sock *socket, p *pen, kind string, data []byte) error {
	switch kind {
	case api.FrameMessages:
		frame, err := decodeMessages(data)
		if err != nil {
			return err
		}
		p.saw(frame.Next)
		return s.accept(frame.Messages, frame.Next)
	case api.FrameHeartbeat:
		frame, err := decode[api.HeartbeatFrame](data)
		if err != nil || frame.Next == nil {
			return err
		}
		p.saw(*frame.Next)
		return s.accept(nil, *frame.Next)
	case api.FrameCommitted:
		frame, err := decode[api.CommittedFrame](data)
		if err != nil {
			return err
		}
		p.done(frame.Offset, nil)
	case api.FrameAssigned:
		frame, err := decode[api.AssignedFrame](data)
		if err != nil {
			return err
		}
		s.assign(frame.Partitions)
		if s.config.OnAssigned != nil {
			s.config.OnAssigned(frame.Partitions)
		}
	case api.FrameError:
		frame, err := sock.problemFrame(data)
		if err != nil {
			return err
		}
		if frame.Close == 0 && frame.Offset != nil {
			return p.refused(*frame.Offset, frame.Problem)
		}
	default: // of a later version
	}
	return nil
}
