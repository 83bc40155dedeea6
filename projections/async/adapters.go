package async

import (
	"database/sql"
	"errors"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"leat/eventstore"
)

// status is what leat.next_batch says of a generation.
type status string

const (
	statusBatch   status = "batch"
	statusIdle    status = "idle"
	statusBusy    status = "busy"
	statusStopped status = "stopped"
	statusFailed  status = "failed"
	statusGone    status = "gone"
)

// batch is a range of the log on its way through one transaction. One watermill
// message carries it: the log has a row for each published message, and a message
// for each would cost more than the work.
type batch struct {
	Range
	settled  eventstore.Position
	building bool
	done     eventstore.Position // up to where the handler got
	failed   error               // what it met behind done
}

// look is what the runner learns from one transaction of the subscriber.
type look struct {
	fetched bool // leat.next_batch has answered
	status  status
	batch   *batch
	problem error
}

// fail keeps the first error.
func (l *look) fail(err error) {
	if l.problem == nil {
		l.problem = err
	}
}

// schema tells the subscriber how to read the log. It always gets one row, so that no
// row at all means that the query failed.
type schema struct{ runner *runner }

const nextSQL = `-- async.next
select b.status,
       coalesce(b.lower_bound, 0),
       coalesce(b.upper_bound, 0),
       coalesce(b.settled, 0),
       coalesce(b.building, false)
from leat.next_batch($1, $2, $3) b`

// SelectQuery locks the checkpoint and reads what comes behind it.
func (s schema) SelectQuery(wsql.SelectQueryParams) (wsql.Query, error) {
	r := s.runner
	return wsql.Query{Query: nextSQL, Args: []any{r.projection.Name(), r.generation, r.size}}, nil
}

// UnmarshalMessage makes a message of the batch.
func (s schema) UnmarshalMessage(params wsql.UnmarshalMessageParams) (wsql.Row, error) {
	l, b := s.runner.look, &batch{Range: Range{Generation: s.runner.generation}}
	if err := params.Row.Scan(&l.status, &b.After, &b.UpTo, &b.settled, &b.building); err != nil {
		return wsql.Row{}, fmt.Errorf("read batch: %w", err)
	}
	l.fetched = true
	if l.status != statusBatch {
		return wsql.Row{}, sql.ErrNoRows // the subscriber's word for nothing to do
	}
	b.done, l.batch = b.After, b
	id := fmt.Sprintf("%s-%d-%d-%d", s.runner.projection.Name(), b.Generation, b.After, b.UpTo)
	return wsql.Row{Offset: int64(b.UpTo), UUID: []byte(id), Msg: message.NewMessage(id, nil)}, nil
}

// SubscribeIsolationLevel is not asked for: beginner knows.
func (s schema) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }

// SchemaInitializingQueries are none: migrations own the tables.
func (s schema) SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams) ([]wsql.Query, error) {
	return nil, nil
}

// InsertQuery refuses: the log is written by commands.
func (s schema) InsertQuery(wsql.InsertQueryParams) (wsql.Query, error) {
	return wsql.Query{}, errors.New("projections only read the log")
}

// offsets keep the checkpoint.
type offsets struct{ runner *runner }

const moveSQL = `-- async.move
update leat.projections p
set position = $3,
    moved_at = clock_timestamp()
where p.name = $1
  and p.generation = $2
  and p.position <= $3`

// AckMessageQuery moves the checkpoint to where the handler got.
func (o offsets) AckMessageQuery(wsql.AckMessageQueryParams) (wsql.Query, error) {
	r := o.runner
	return wsql.Query{Query: moveSQL, Args: []any{r.projection.Name(), r.generation, r.look.batch.done}}, nil
}

// ConsumedMessageQuery is none.
func (o offsets) ConsumedMessageQuery(wsql.ConsumedMessageQueryParams) (wsql.Query, error) {
	return wsql.Query{}, nil
}

// NextOffsetQuery is part of SelectQuery.
func (o offsets) NextOffsetQuery(wsql.NextOffsetQueryParams) (wsql.Query, error) {
	return wsql.Query{}, nil
}

// SchemaInitializingQueries are none: migrations own the tables.
func (o offsets) SchemaInitializingQueries(wsql.OffsetsSchemaInitializingQueriesParams) ([]wsql.Query, error) {
	return nil, nil
}

// BeforeSubscribingQueries are none.
func (o offsets) BeforeSubscribingQueries(wsql.BeforeSubscribingQueriesParams) ([]wsql.Query, error) {
	return nil, nil
}
