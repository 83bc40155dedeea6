package queries

import (
	"context"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// The states of a circuit that is not closed.
const (
	CircuitOpen     = "open"      // what comes of the key goes to the dead letters
	CircuitHalfOpen = "half_open" // and one of them is tried
	CircuitClosing  = "closing"   // which went well: the others are about to follow
)

var circuitStates = []string{CircuitOpen, CircuitHalfOpen, CircuitClosing}

// Circuit is that of a routing key of a FIFO queue. It is not closed.
type Circuit struct {
	ChannelID  eventstore.ChannelID
	Channel    string
	RoutingKey string
	State      string
	MessageID  eventstore.MessageID // half-open: the one that is tried; else the one that opened it, 0 when none did
	Reason     string               // why that died, or "by hand"
	OpenedAt   time.Time
	ChangedAt  time.Time
	ProbeAt    *time.Time             // open: when it tries the next; nil is never
	Admitted   []eventstore.MessageID // that it lets through
}

// CircuitsFilter chooses circuits.
type CircuitsFilter struct {
	Channel    string  // "" is any
	RoutingKey *string // nil is any
	AsOf       *Moment // nil is now; then none is closing, of which the log knows nothing
	State      string  // open, half_open or closing; "" is any of them
	Cursor     string  // from an earlier page
	Limit      int     // 1 to MaxLimit; 0 is DefaultLimit
}

const circuitsSQL = `-- queries.Circuits
select r.channel_id,
       c.name,
       r.routing_key,
       r.state,
       coalesce(r.message_id, 0),
       coalesce(r.reason, ''),
       r.opened_at,
       r.changed_at,
       r.probe_at,
       r.admitted
from leat.circuits r
join leat.channels c on c.id = r.channel_id and c.deleted_at is null
where ($1::integer is null or r.channel_id = $1)
  and ($2::text is null or r.routing_key = $2)
  and r.state <> 'closed'
  and ($3::text is null or r.state = $3)
  and (r.channel_id, r.routing_key) > ($4, $5::text)
order by r.channel_id, r.routing_key
limit $6`

// Circuits lists circuits that are not closed, by queue and routing key. The second
// result is the cursor of the next page, "" on the last. It does not need the queue
// views.
func (q *Queries) Circuits(ctx context.Context, f CircuitsFilter) (page []Circuit, next string, err error) {
	after, err := parseKeyCursor(f.Cursor)
	if err != nil {
		return nil, "", err
	}
	limit, err := checkLimit(f.Limit)
	if err != nil {
		return nil, "", err
	}
	if f.State != "" && !slices.Contains(circuitStates, f.State) {
		return nil, "", invalid("state", "must be open, halfOpen or closing")
	}
	if f.RoutingKey != nil {
		if err := checkText("routingKey", *f.RoutingKey); err != nil {
			return nil, "", err
		}
	}
	if f.AsOf != nil {
		page, err = q.circuitsAsOf(ctx, f, after, limit)
	} else {
		page, err = q.circuitsNow(ctx, f, after, limit)
	}
	if err != nil {
		return nil, "", wrap(err, "list circuits")
	}
	if len(page) > limit {
		page = page[:limit]
		last := page[limit-1]
		next = keyCursor{last.ChannelID, last.RoutingKey}.String()
	}
	return page, next, nil
}

func (q *Queries) circuitsNow(ctx context.Context, f CircuitsFilter, after keyCursor, limit int) ([]Circuit, error) {
	channel, err := q.linked(ctx, f.Channel)
	if err != nil {
		return nil, err
	}
	return collect(ctx, q.pool, pgx.RowToStructByPos[Circuit], circuitsSQL,
		channel, f.RoutingKey, optional(f.State), after.channel, after.key, limit+1)
}

// keyCursor names the last channel and routing key that were seen.
type keyCursor struct {
	channel eventstore.ChannelID
	key     string
}

const keyCursorPrefix = "k."

func (c keyCursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(keyCursorPrefix + strconv.FormatInt(int64(c.channel), 10) + "." + c.key))
}

// parseKeyCursor reads what String wrote; "" is the beginning.
func parseKeyCursor(s string) (keyCursor, error) {
	if s == "" {
		return keyCursor{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		if rest, ok := strings.CutPrefix(string(text), keyCursorPrefix); ok {
			digits, key, _ := strings.Cut(rest, ".")
			n, err := strconv.ParseInt(digits, 10, 32)
			c := keyCursor{eventstore.ChannelID(n), key}
			if err == nil && n > 0 && n < math.MaxInt32 && c.String() == s && checkText("cursor", key) == nil {
				return c, nil
			}
		}
	}
	return keyCursor{}, invalid("cursor", "is not one that was given out")
}
