package replication_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/replication"
)

// Without a tail, the table is asked when the hub is poked, and every second.
func TestHubWithoutTail(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	s.append(3)
	early := read(t, s.subscribe(hub, eventstore.SubscribeRequest{Start: eventstore.Start{Kind: eventstore.StartEarliest}}))
	late := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	require.Equal(t, eventstore.Subscribed{
		Stream: "s", Next: eventstore.StreamPosition{Epoch: s.epoch, Offset: 3}, End: 3,
	}, late.sub.Subscribed())
	early.until(3)
	s.append(2)
	hub.Poke(s.channel)
	early.until(5)
	late.until(5)
	s.append(2)
	early.until(7)
	late.until(7)
	s.copies(3)
	s.append(1)
	early.until(11)
	late.until(11)
}

// With a tail the table is read for what was there before only.
func TestHubWithTail(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	hub.Live()
	s.append(3)
	early := read(t, s.subscribe(hub, eventstore.SubscribeRequest{Start: eventstore.Start{Kind: eventstore.StartEarliest}}))
	early.until(3)
	late := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	s.tell(hub, 3, 2) // nobody has written them
	early.until(5)
	late.until(5)
	s.tell(hub, 3, 2) // again
	s.tell(hub, 5, 1)
	early.until(6)
}

// A row of copies is read from the table by the hub, once for all.
func TestHubBatchOfTail(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	hub.Live()
	a, b := read(t, s.subscribe(hub, eventstore.SubscribeRequest{})), read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	s.append(1)
	s.copies(5)
	s.append(1)
	s.tell(hub, 0, 1)
	hub.Batch(s.channel, 1, 5)
	s.tell(hub, 6, 1)
	a.until(7)
	b.until(7)
}

func TestSubscribeStarts(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	s.append(10)
	s.trim(4)
	position := func(n eventstore.Offset) *eventstore.StreamPosition {
		return &eventstore.StreamPosition{Epoch: s.epoch, Offset: n}
	}
	for name, test := range map[string]struct {
		start eventstore.Start
		next  eventstore.Offset
	}{
		"latest":   {eventstore.Start{}, 10},
		"earliest": {eventstore.Start{Kind: eventstore.StartEarliest}, 4},
		"offset":   {from(7), 7},
		"first":    {from(4), 4},
		"end":      {from(10), 10},
		"epoch":    {eventstore.Start{Kind: eventstore.StartOffset, Offset: 7, Epoch: s.epoch}, 7},
		"time":     {eventstore.Start{Kind: eventstore.StartTime}, 4},
	} {
		sub := s.subscribe(hub, eventstore.SubscribeRequest{Start: test.start})
		require.Equal(t, eventstore.Subscribed{Stream: "s", Next: *position(test.next), First: 4, End: 10}, sub.Subscribed(), name)
	}
	for _, test := range []struct {
		request eventstore.SubscribeRequest
		code    eventstore.Code
		resume  *eventstore.StreamPosition
	}{
		{eventstore.SubscribeRequest{Start: from(3)}, eventstore.OffsetGone, position(4)},
		{eventstore.SubscribeRequest{Start: from(11)}, eventstore.OffsetAhead, position(10)},
		{eventstore.SubscribeRequest{Start: eventstore.Start{Epoch: s.epoch + 1}}, eventstore.EpochChanged, position(4)},
		{eventstore.SubscribeRequest{Stream: "none"}, eventstore.ChannelNotFound, nil},
		{eventstore.SubscribeRequest{Window: -1}, eventstore.InvalidField, nil},
		{eventstore.SubscribeRequest{Pattern: "\xff"}, eventstore.InvalidField, nil},
	} {
		if test.request.Stream == "" {
			test.request.Stream = "s"
		}
		_, err := hub.Subscribe(ctx, test.request)
		requireCode(t, err, test.code, test.resume)
	}
}

func TestSubscriptionPattern(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	hub.Live()
	s.append(8)
	sub := s.subscribe(hub, eventstore.SubscribeRequest{Start: from(0), Pattern: "a.*"})
	var got []eventstore.Offset
	for len(got) < 4 {
		batch, err := next(ctx, sub)
		require.NoError(t, err)
		for _, m := range batch.Messages {
			got = append(got, m.Offset)
		}
	}
	require.Equal(t, []eventstore.Offset{1, 3, 5, 7}, got)
	s.tell(hub, 8, 1)
	batch, err := sub.Next(ctx, soon)
	require.NoError(t, err)
	require.Empty(t, batch.Messages, "a sign of life")
	require.Equal(t, eventstore.StreamPosition{Epoch: s.epoch, Offset: 9}, batch.Next)
	require.Equal(t, eventstore.Offset(9), batch.End)
}

func TestSubscriptionWindow(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	hub.Live()
	sub := s.subscribe(hub, eventstore.SubscribeRequest{Window: 3})
	r := read(t, sub)
	s.tell(hub, 0, 10)
	r.until(3)
	full := func() {
		t.Helper()
		batch, err := sub.Next(ctx, soon)
		require.NoError(t, err)
		require.Empty(t, batch.Messages)
	}
	full()
	require.NoError(t, sub.Ack(1))
	r.until(5)
	full()
	require.NoError(t, sub.Ack(1))
	full()
	require.NoError(t, sub.Ack(4))
	r.until(8)
}

// Next waits until its context ends, or the subscription does.
func TestSubscriptionEnds(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	sub := s.subscribe(hub, eventstore.SubscribeRequest{})
	ending, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	_, err := sub.Next(ending, 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	closing := s.subscribe(hub, eventstore.SubscribeRequest{})
	ended := make(chan error)
	go func() {
		_, err := closing.Next(ctx, 0)
		ended <- err
	}()
	closing.Close()
	require.ErrorIs(t, <-ended, replication.ErrClosed)
	closing.Close()

	go func() {
		_, err := sub.Next(ctx, 0)
		ended <- err
	}()
	hub.Stop()
	requireCode(t, <-ended, eventstore.ShuttingDown, nil)
	_, err = sub.Next(ctx, 0)
	requireCode(t, err, eventstore.ShuttingDown, nil)
	_, err = hub.Subscribe(ctx, eventstore.SubscribeRequest{Stream: "s"})
	requireCode(t, err, eventstore.ShuttingDown, nil)
}

// Who reads a stream that is deleted is told, and so is who reads one that was
// declared again meanwhile.
func TestSubscriptionOfDeletedStream(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	waiting := s.subscribe(hub, eventstore.SubscribeRequest{})
	s.delete()
	_, err := next(ctx, waiting)
	requireCode(t, err, eventstore.ChannelNotFound, nil)

	again := newStream(t, s.pool, "s")
	hub.Live()
	waiting = again.subscribe(hub, eventstore.SubscribeRequest{})
	again.delete()
	third := newStream(t, s.pool, "s")
	_, err = next(ctx, waiting)
	requireCode(t, err, eventstore.EpochChanged, &eventstore.StreamPosition{Epoch: third.epoch})
}

// Retention that overtakes a slow subscriber is told, with where it may go on.
func TestSubscriptionOvertakenByRetention(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	s.append(10)
	sub := s.subscribe(hub, eventstore.SubscribeRequest{Start: from(0)})
	s.trim(5)
	_, err := next(ctx, sub)
	requireCode(t, err, eventstore.OffsetGone, &eventstore.StreamPosition{Epoch: s.epoch, Offset: 5})
	read(t, s.subscribe(hub, eventstore.SubscribeRequest{Start: from(5)})).until(10)
}
