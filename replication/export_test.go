package replication

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// Statements are all the statements of the package.
func Statements() []string {
	return append(pointStatements(), announceSQL, publicationStateSQL, makePublicationSQL, holdsUpSQL, renewSQL, leaveSQL, contentSQL, denseSQL, findStartSQL, locateSQL, pageSQL, publishingSQL, streamStatesSQL)
}

// For looking at their plans.
const (
	ContentSQL = contentSQL
	DenseSQL   = denseSQL
	LocateSQL  = locateSQL
	PageSQL    = pageSQL
)

// ReadPages reads a stream from the table, page by page, and answers how many those
// were.
func ReadPages(
	ctx context.Context, pool *pgxpool.Pool, channel eventstore.ChannelID, from, below eventstore.Offset, span int64, bytes int,
) (messages []*eventstore.StreamMessage, pages int, err error) {
	c := cursor{channel: channel, next: from, span: span}
	for c.next < below {
		p, err := readPage(ctx, pool, &c, below, bytes)
		if err != nil || len(p.messages) == 0 {
			return messages, pages, err
		}
		pages++
		messages = append(messages, p.messages...)
	}
	return messages, pages, nil
}

// Held is what a hub keeps in memory, in bytes.
func (h *Hub) Held() (rings, pages int64) { return h.ringsBytes.Load(), h.pagesBytes.Load() }
