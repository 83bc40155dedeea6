package httpapi

import (
	"time"

	"leat/eventstore"
	"leat/queries"
)

// headerAsOf says to which position of the log an answer as of a time belongs.
const headerAsOf = "Leat-As-Of"

// asOfParameter is that of all queries that can look into the past.
func asOfParameter() parameter {
	return query[string]("asOf", "a position of the log, or a time (RFC 3339): answer as then; the header "+headerAsOf+
		" tells the position. It takes longer: the log is read up to there")
}

const asOfAbout = "As of a moment it is what this query would have answered then, of the channel that had the name then: what was due counts as " +
	"ready, and a lease that was over and not swept yet is still there. A moment to come, or one up to which the log is not settled, is refused as position_ahead."

// asOf reads the parameter; nil is now.
func (s *server) asOf(c *call) (*queries.Moment, error) {
	if !c.query.has("asOf") {
		return nil, nil //nolint:nilnil // now is no moment of the past, and no error
	}
	text := c.query.text("asOf")
	var m queries.Moment
	p, err := eventstore.ParsePosition(text)
	if err == nil && p > 0 {
		m, err = s.Queries.MomentAt(c.ctx(), p)
	} else {
		at, bad := time.Parse(time.RFC3339Nano, text)
		if bad != nil {
			return nil, invalid("asOf", "must be a position of the log, or a time as in RFC 3339, such as 2006-01-02T15:04:05Z (write + as %%2B)")
		}
		m, err = s.Queries.MomentOf(c.ctx(), at)
	}
	if err != nil {
		return nil, err
	}
	c.w.Header().Set(headerAsOf, m.Position.String())
	return &m, nil
}
