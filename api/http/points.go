package httpapi

import (
	"net/http"

	"leat/api"
	"leat/eventstore"
)

var listPointsDoc = operation{
	id: "listPoints", summary: "List the replication points of a stream by name, with lag and readers",
	answers: ok[api.PointPage]("All points of the stream."),
}

func (s *server) listPoints(c *call) error {
	points, err := s.Queries.Points(c.ctx(), c.name())
	if err != nil {
		return err
	}
	page := api.PointPage{Points: make([]api.Point, len(points))}
	for i := range points {
		page.Points[i] = pointOf(&points[i])
	}
	return c.answer(http.StatusOK, page)
}

var declarePointDoc = operation{
	id: "declarePoint", summary: "Make a replication point; one that exists stays where it is",
	bodies: mayTake[api.PointSpec](),
	answers: []answer{
		gives[api.Point](http.StatusCreated, "It did not exist before."),
		gives[api.Point](http.StatusOK, "It exists, wherever it is now."),
	},
}

func (s *server) declarePoint(c *call) error {
	var spec api.PointSpec
	if err := c.decode(&spec); err != nil {
		return err
	}
	start, err := startOf(spec.From, spec.Epoch)
	if err != nil {
		return err
	}
	created, err := s.Points.Declare(c.ctx(), c.actor, c.name(), c.param("point"), spec.Partitions, start)
	if err != nil {
		return err
	}
	if created {
		return s.answerPoint(c, http.StatusCreated)
	}
	return s.answerPoint(c, http.StatusOK)
}

var getPointDoc = operation{
	id: "getPoint", summary: "Look at a replication point, with lag and readers",
	answers: ok[api.Point]("The point."),
}

func (s *server) getPoint(c *call) error { return s.answerPoint(c, http.StatusOK) }

var deletePointDoc = operation{
	id: "deletePoint", summary: "Delete a replication point, and end the subscriptions that read with it",
	answers: []answer{{status: http.StatusNoContent, doc: "It is gone."}},
}

func (s *server) deletePoint(c *call) error {
	if err := s.Points.Delete(c.ctx(), c.actor, c.name(), c.param("point")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

var commitPointDoc = operation{
	id:      "commitPoint",
	summary: "Say that everything up to and with an offset was processed, in all partitions, whoever reads with the point",
	bodies:  takes[api.PointCommit](),
	answers: ok[api.Point]("The point as it is now."),
}

func (s *server) commitPoint(c *call) error {
	var commit api.PointCommit
	if err := c.decode(&commit); err != nil {
		return err
	}
	if commit.Offset == nil {
		return invalid("offset", "must be given: the last one that was processed")
	}
	last := eventstore.StreamPosition{Epoch: commit.Epoch, Offset: *commit.Offset}
	if err := s.Points.Commit(c.ctx(), c.actor, c.name(), c.param("point"), last); err != nil {
		return err
	}
	return s.answerPoint(c, http.StatusOK)
}

var resetPointDoc = operation{
	id:      "resetPoint",
	summary: "Move a replication point anywhere; who reads with it is disconnected, and begins there when it comes again",
	bodies:  takes[api.PointStart](),
	answers: ok[api.Point]("The point as it is now."),
}

func (s *server) resetPoint(c *call) error {
	var to api.PointStart
	if err := c.decode(&to); err != nil {
		return err
	}
	if to.From == "" {
		return invalid("from", "must be given: earliest, latest, an offset, or a time")
	}
	start, err := startOf(to.From, to.Epoch)
	if err != nil {
		return err
	}
	if err := s.Points.Reset(c.ctx(), c.actor, c.name(), c.param("point"), start); err != nil {
		return err
	}
	return s.answerPoint(c, http.StatusOK)
}

// answerPoint answers the point of the path as it is now.
func (s *server) answerPoint(c *call, status int) error {
	point, err := s.Queries.Point(c.ctx(), c.name(), c.param("point"))
	if err != nil {
		return err
	}
	return c.answer(status, pointOf(&point))
}

func pointOf(p *eventstore.Point) api.Point {
	wire := api.Point{
		Stream: p.Stream, Point: p.Name, Epoch: p.Next.Epoch, Next: p.Next.Offset, End: p.End, Lag: p.Lag,
		Age: api.Duration(p.Age), CreatedAt: p.CreatedAt.UTC(), Members: make([]api.PointMember, len(p.Members)),
	}
	if len(p.Partitions) > 1 {
		wire.Partitions = make([]api.PointPartition, len(p.Partitions))
		for i, q := range p.Partitions {
			wire.Partitions[i] = api.PointPartition{
				Partition: q.Partition, Next: q.Next, CommittedAt: q.CommittedAt.UTC(), Member: q.Member,
			}
		}
	}
	for i, m := range p.Members {
		wire.Members[i] = api.PointMember{Member: m.Name, Broker: m.Broker}
	}
	return wire
}
