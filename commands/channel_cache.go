package commands

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// channel is what the hot paths need to know of a channel; it never changes while
// the id is in use.
type channel struct {
	id       eventstore.ChannelID
	name     string
	fifo     bool
	exchange bool
	stream   bool
}

// channelCache remembers channels by name. An entry may be out of date when a
// channel was deleted elsewhere: the SQL functions then refuse its id, and the
// caller forgets it and asks again.
type channelCache struct {
	mu     sync.RWMutex
	byName map[string]channel
}

const findChannelSQL = `-- commands.findChannel
select c.id, c.mode = 'fifo', c.kind = 'exchange', c.kind = 'stream'
from leat.channels c
where c.name = $1 and c.deleted_at is null`

// findQueue resolves the name of a queue.
func (c *channelCache) findQueue(ctx context.Context, db querier, name string) (channel, error) {
	ch, err := c.find(ctx, db, name)
	switch {
	case err != nil:
		return channel{}, err
	case ch.exchange:
		return channel{}, eventstore.NoQueue(name, Exchange)
	case ch.stream:
		return channel{}, eventstore.NoQueue(name, Stream)
	}
	return ch, nil
}

// find resolves the name of a channel.
func (c *channelCache) find(ctx context.Context, db querier, name string) (channel, error) {
	c.mu.RLock()
	ch, ok := c.byName[name]
	c.mu.RUnlock()
	if ok {
		return ch, nil
	}
	if !validName(name) {
		return channel{}, channelNotFound(name)
	}
	ch.name = name
	err := queryRow(ctx, db, findChannelSQL, []any{name}, &ch.id, &ch.fifo, &ch.exchange, &ch.stream)
	if errors.Is(err, pgx.ErrNoRows) {
		return channel{}, channelNotFound(name)
	}
	if err != nil {
		return channel{}, err
	}
	if _, inTx := db.(pgx.Tx); !inTx { // a transaction may see what never commits
		c.mu.Lock()
		c.byName[name] = ch
		c.mu.Unlock()
	}
	return ch, nil
}

// forget drops what is known of a name.
func (c *channelCache) forget(name string) {
	c.mu.Lock()
	delete(c.byName, name)
	c.mu.Unlock()
}

func channelNotFound(name string) *eventstore.Error {
	return eventstore.NewError(eventstore.ChannelNotFound, "There is no channel %.300q.", name)
}

// isGone reports whether a channel was not found by its id.
func isGone(err error) bool {
	return errors.Is(err, &eventstore.Error{Code: eventstore.ChannelNotFound})
}
