package replication_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
)

func TestDeclarePoint(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(10)
	l.trim(3)
	now := time.Now()
	for point, c := range map[string]struct {
		start eventstore.Start
		next  eventstore.Offset
	}{
		"default":  {eventstore.Start{}, 10},
		"latest":   {latest, 10},
		"earliest": {earliest, 3},
		"first":    {at(3), 3},
		"end":      {at(10), 10},
		"epoch":    {eventstore.Start{Kind: eventstore.StartOffset, Offset: 5, Epoch: l.epoch()}, 5},
		"old":      {eventstore.Start{Kind: eventstore.StartTime, Time: now.Add(-time.Hour)}, 3},
		"young":    {eventstore.Start{Kind: eventstore.StartTime, Time: now.Add(time.Hour)}, 10},
	} {
		l.declare(point, c.start)
		require.Equal(t, []eventstore.Offset{c.next}, l.positions(point), point)
		created, err := l.Declare(ctx, "test", "s", point, 1, latest)
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, []eventstore.Offset{c.next}, l.positions(point), "it stays where it is")
	}
	_, err := l.Declare(ctx, "test", "s", "latest", 2, latest)
	require.Equal(t, "partitions", refusal(t, eventstore.PointConflict, err).Field)
	require.Contains(t, l.events(), `point.created {"next": 3, "point": "earliest", "partitions": 1}`)
	require.Len(t, l.events(), 8, "the same again is no event")
}

func TestDeclarePointByTime(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 50 {
		l.publishAt(1+i%3, begin.Add(time.Duration(i)*time.Second))
	}
	published := eventstore.Offset(0)
	for i := range 50 {
		for _, early := range []time.Duration{0, time.Millisecond} {
			start := eventstore.Start{Kind: eventstore.StartTime, Time: begin.Add(time.Duration(i)*time.Second - early)}
			require.NoError(t, errors.Join(ignore(l.Declare(ctx, "", "s", "p", 0, latest)), l.Reset(ctx, "", "s", "p", start)))
			require.Equal(t, []eventstore.Offset{published}, l.positions("p"), "second %d", i)
		}
		published += eventstore.Offset(1 + i%3)
	}
}

func ignore(_ bool, err error) error { return err }

func TestDeclarePointAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var group sync.WaitGroup
	made := make(chan bool, 20)
	for range cap(made) {
		group.Go(func() {
			created, err := l.Declare(ctx, "test", "s", "p", 4, latest)
			if err == nil {
				made <- created
			}
		})
	}
	group.Wait()
	close(made)
	total, created := 0, 0
	for c := range made {
		total++
		if c {
			created++
		}
	}
	require.Equal(t, 20, total)
	require.Equal(t, 1, created)
	require.Len(t, l.events(), 1)
	require.Len(t, l.positions("p"), 4)
}

func TestPointsRefuse(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(10)
	l.trim(3)
	l.declare("p", earliest)
	_, err := l.pool.Exec(ctx, `select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`)
	require.NoError(t, err)
	declare := func(stream, point string, partitions int, start eventstore.Start) error {
		return ignore(l.Declare(ctx, "test", stream, point, partitions, start))
	}
	here := eventstore.StreamPosition{Epoch: l.epoch()}
	other := eventstore.Start{Kind: eventstore.StartOffset, Offset: 5, Epoch: here.Epoch + 1}
	for name, c := range map[string]struct {
		err    error
		code   eventstore.Code
		resume eventstore.Offset // -1: none
	}{
		"no stream":       {declare("none", "x", 0, latest), eventstore.ChannelNotFound, -1},
		"bad stream":      {declare("\x00", "x", 0, latest), eventstore.ChannelNotFound, -1},
		"a queue":         {declare("q", "x", 0, latest), eventstore.ChannelNotFound, -1},
		"bad name":        {declare("s", "a b", 0, latest), eventstore.InvalidField, -1},
		"no name":         {declare("s", "", 0, latest), eventstore.InvalidField, -1},
		"many partitions": {declare("s", "x", 65, latest), eventstore.InvalidField, -1},
		"less than none":  {declare("s", "x", -1, latest), eventstore.InvalidField, -1},
		"negative offset": {declare("s", "x", 0, at(-1)), eventstore.InvalidField, -1},
		"gone":            {declare("s", "x", 0, at(2)), eventstore.OffsetGone, 3},
		"ahead":           {declare("s", "x", 0, at(11)), eventstore.OffsetAhead, 10},
		"epoch":           {declare("s", "x", 0, other), eventstore.EpochChanged, 3},
		"epoch, it is":    {declare("s", "p", 0, other), eventstore.EpochChanged, 3},
		"bad start":       {declare("s", "x", 0, eventstore.Start{Kind: 9}), eventstore.InvalidField, -1},
		"bad time":        {declare("s", "x", 0, eventstore.Start{Kind: eventstore.StartTime, Time: time.Unix(1<<40, 0)}), eventstore.InvalidField, -1},
		"reset gone":      {l.Reset(ctx, "", "s", "p", at(2)), eventstore.OffsetGone, 3},
		"reset ahead":     {l.Reset(ctx, "", "s", "p", at(1<<62)), eventstore.OffsetAhead, 10},
		"reset epoch":     {l.Reset(ctx, "", "s", "p", other), eventstore.EpochChanged, 3},
		"reset none":      {l.Reset(ctx, "", "s", "x", latest), eventstore.PointNotFound, -1},
		"delete none":     {l.Delete(ctx, "", "s", "x"), eventstore.PointNotFound, -1},
		"commit none":     {l.Commit(ctx, "", "s", "x", here), eventstore.PointNotFound, -1},
		"commit below":    {l.commit(-1), eventstore.InvalidField, -1},
		"commit behind":   {l.commit(1), eventstore.CommitBehind, 3},
		"commit ahead":    {l.commit(10), eventstore.OffsetAhead, 10},
		"commit far":      {l.commit(1<<63 - 1), eventstore.OffsetAhead, 10},
		"commit epoch":    {l.Commit(ctx, "", "s", "p", eventstore.StreamPosition{Epoch: 1 << 40, Offset: 4}), eventstore.EpochChanged, 3},
		"actor":           {ignore(l.Declare(ctx, "\x00", "s", "x", 0, latest)), eventstore.InvalidField, -1},
	} {
		e := refusal(t, c.code, c.err)
		if c.resume < 0 {
			require.Nil(t, e.Resume, name)
		} else {
			require.Equal(t, &eventstore.StreamPosition{Epoch: here.Epoch, Offset: c.resume}, e.Resume, name)
		}
	}
	require.Len(t, l.events(), 1, "what is refused is no event")
}
