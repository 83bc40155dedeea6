package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"leat/api"
	"leat/eventstore"
)

// Log is what the API needs of *eventstore.Store and of its *eventstore.Retention.
type Log interface {
	State(ctx context.Context) (eventstore.LogState, error)
	SealAll(ctx context.Context, age time.Duration) error
	LastSeal(ctx context.Context) (*eventstore.Seal, time.Time, error)
	ChainStart(ctx context.Context) (eventstore.ChainPoint, error)
	NoteArchive(ctx context.Context, actor string, r eventstore.ArchivedRange) (eventstore.Position, error)
	VerifyChain(ctx context.Context, after eventstore.ChainPoint, expect *eventstore.Digest) (eventstore.ChainPage, error)
}

var getLogDoc = operation{
	id: "getLog", summary: "How the log lies in the database: its partitions, and what keeps each from being dropped",
	answers: ok[api.Log]("The log. Partitions are dropped from its beginning only: what keeps one keeps all behind it."),
}

func (s *server) getLog(c *call) error {
	state, err := s.Log.State(c.ctx())
	if err != nil {
		return err
	}
	seal, at, err := s.Log.LastSeal(c.ctx())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.LogOf(state, api.SealOf(seal, at)))
}

var sealDoc = operation{
	id: "sealLog", summary: "Seal all of the log that is settled, now",
	about:  "A seal is a log.sealed event with a digest of what was appended since the one before, and of that one's digest.",
	bodies: mayTake[struct{}](),
	answers: ok[api.SealResult](
		"The last seal. It may be an older one, where nothing was appended since, or another broker seals at the moment."),
}

func (s *server) seal(c *call) error {
	var none struct{}
	if err := c.decode(&none); err != nil {
		return err
	}
	if err := s.Log.SealAll(c.ctx(), 0); err != nil {
		return err
	}
	seal, at, err := s.Log.LastSeal(c.ctx())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.SealResult{Seal: api.SealOf(seal, at)})
}

var verifyLogDoc = operation{
	id: "verifyLog", summary: "Hold the log against its seals, in pages",
	about: "A page verifies that seals follow on each other and that the events are those that were sealed. " +
		"Follow nextCursor to the end of the chain.",
	bodies: mayTake[struct{}](),
	query: []parameter{
		query[string]("cursor", "nextCursor of the page before; default: where the log begins"),
		query[string]("expect", "a digest that the chain has to have: met says whether it is one of this page"),
	},
	answers: ok[api.ChainPage]("What was found."),
}

func (s *server) verifyLog(c *call) error {
	var (
		none   struct{}
		expect *eventstore.Digest
	)
	if c.query.has("expect") {
		digest, err := eventstore.ParseDigest(c.query.text("expect"))
		if err != nil {
			return invalid("expect", "must be a digest of 64 hexadecimal digits")
		}
		expect = &digest
	}
	if err := c.decode(&none); err != nil {
		return err
	}
	after, err := s.chainPoint(c)
	if err != nil {
		return err
	}
	page, err := s.Log.VerifyChain(c.ctx(), after, expect)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.ChainPageOf(page))
}

func (s *server) chainPoint(c *call) (eventstore.ChainPoint, error) {
	if !c.query.has("cursor") {
		return s.Log.ChainStart(c.ctx())
	}
	point, err := eventstore.ParseChainPoint(c.query.text("cursor"))
	if err != nil {
		return point, invalid("cursor", "must be the nextCursor of a page")
	}
	return point, nil
}

var noteArchiveDoc = operation{
	id: "noteArchive", summary: "Note that a range of the log is in an archive, as leat archive does",
	about:   "It appends a log.archived event. Said again, nothing more is appended.",
	bodies:  takes[api.ArchivedRange](),
	answers: ok[api.ArchiveResult]("It is noted."),
}

func (s *server) noteArchive(c *call) error {
	var r api.ArchivedRange
	if err := c.decode(&r); err != nil {
		return err
	}
	file, err := eventstore.ParseDigest(r.SHA256)
	if err != nil {
		return invalid("sha256", "must be 64 hexadecimal digits")
	}
	digest, err := eventstore.ParseDigest(r.Digest)
	if err != nil {
		return invalid("digest", "must be 64 hexadecimal digits")
	}
	if r.From < 1 || r.To < r.From || r.Events < 0 {
		return invalid("to", "must not be less than from, nor from less than 1")
	}
	if r.File == "" || len(r.File) > 255 || strings.ContainsRune(r.File, 0) {
		return invalid("file", "must have 1 to 255 bytes, without NUL")
	}
	position, err := s.Log.NoteArchive(c.ctx(), c.actor, eventstore.ArchivedRange{
		From: r.From, To: r.To, Events: r.Events, File: r.File, SHA256: file, Digest: digest,
	})
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.ArchiveResult{Position: position})
}
