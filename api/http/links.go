package httpapi

import (
	"net/http"

	"leat/api"
	"leat/api/internal/strict"
	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

var declareLinkDoc = operation{
	id: "declareLink", summary: "Declare a link; the same again changes nothing",
	bodies: takes[api.LinkSpec](),
	answers: []answer{
		gives[api.Link](http.StatusCreated, "It did not exist before."),
		gives[api.Link](http.StatusOK, "It exists with these settings."),
	},
}

func (s *server) declareLink(c *call) error {
	var spec api.LinkSpec
	if err := c.decode(&spec); err != nil {
		return err
	}
	link, created, err := s.Commands.DeclareLink(c.ctx(), c.actor, commands.LinkSpec{
		Source: spec.Source, Target: spec.Target, RewriteKey: spec.RewriteKey, Enabled: spec.Enabled,
		Match: commands.Match{
			Type: spec.Match.Type, Pattern: spec.Match.Pattern, Headers: notNull(spec.Match.Headers), Mode: spec.Match.Mode,
		},
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.answer(status, linkOf(link))
}

// notNull takes null for absent.
func notNull(raw []byte) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

var listLinksDoc = operation{
	id: "listLinks", summary: "List links by id",
	query: paging(
		query[string]("source", "only links that lead from this channel"),
		query[string]("target", "only links that lead to this channel")),
	answers: ok[api.LinkPage]("A page of links."),
}

func (s *server) listLinks(c *call) error {
	q := &c.query
	filter := queries.LinksFilter{
		Source: q.filter("source"), Target: q.filter("target"), Cursor: q.text("cursor"), Limit: q.limit(queries.MaxLimit),
	}
	if q.err != nil {
		return q.err
	}
	links, next, err := s.Queries.Links(c.ctx(), filter)
	if err != nil {
		return err
	}
	page := api.LinkPage{Links: make([]api.Link, len(links)), NextCursor: next}
	for i, link := range links {
		page.Links[i] = storedLink(link)
	}
	return c.answer(http.StatusOK, page)
}

var getLinkDoc = operation{
	id: "getLink", summary: "Look at a link",
	answers: ok[api.Link]("The link."),
}

func (s *server) getLink(c *call) error {
	id, err := linkID(c)
	if err != nil {
		return err
	}
	link, err := s.Queries.Link(c.ctx(), id)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, storedLink(link))
}

var alterLinkDoc = operation{
	id: "alterLink", summary: "Enable or disable a link, or change the key that it gives",
	bodies:  takes[api.LinkPatch](),
	answers: ok[api.Link]("The link as it is now."),
}

func (s *server) alterLink(c *call) error {
	id, err := linkID(c)
	if err != nil {
		return err
	}
	var wire api.LinkPatch
	if err := c.decode(&wire); err != nil {
		return err
	}
	patch := commands.LinkPatch{Enabled: wire.Enabled}
	switch {
	case wire.RewriteKey == nil:
	case notNull(wire.RewriteKey) == nil:
		patch.KeepKey = true
	default:
		var in struct {
			RewriteKey *string `json:"rewriteKey"`
		}
		// For the name of the field in what it refuses.
		if err := strict.Decode(append(append([]byte(`{"rewriteKey":`), wire.RewriteKey...), '}'), &in); err != nil {
			return err
		}
		patch.RewriteKey = in.RewriteKey
	}
	link, err := s.Commands.AlterLink(c.ctx(), c.actor, id, patch)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, linkOf(link))
}

var deleteLinkDoc = operation{
	id: "deleteLink", summary: "Delete a link; what went along it stays where it is",
	answers: []answer{{status: http.StatusNoContent, doc: "It is gone."}},
}

func (s *server) deleteLink(c *call) error {
	id, err := linkID(c)
	if err != nil {
		return err
	}
	if err := s.Commands.DeleteLink(c.ctx(), c.actor, id); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// linkID reads the {id} of the path; what is no id is the id of no link.
func linkID(c *call) (eventstore.LinkID, error) {
	text := c.param("id")
	id, err := eventstore.ParseLinkID(text)
	if err != nil {
		return 0, eventstore.NewError(eventstore.LinkNotFound, "There is no link %q.", text)
	}
	return id, nil
}

func linkOf(l commands.Link) api.Link {
	return api.Link{
		ID:     l.ID,
		Source: l.Source,
		Target: l.Target,
		Match: api.Match{
			Type: l.Match.Type, Pattern: l.Match.Pattern, Headers: l.Match.Headers, Mode: l.Match.Mode,
		},
		RewriteKey: l.RewriteKey,
		Enabled:    l.Enabled,
		DeclaredAt: l.DeclaredAt.UTC(),
	}
}

func storedLink(l queries.Link) api.Link {
	return linkOf(commands.Link{
		ID: l.ID, Source: l.Source, Target: l.Target, Match: commands.Match(l.Match),
		RewriteKey: l.RewriteKey, Enabled: l.Enabled, DeclaredAt: l.DeclaredAt,
	})
}
