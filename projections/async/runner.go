package async

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// topic is what the subscriber calls the log.
const topic = "leat_events"

// Steps of a batch, at which tests let it end.
const (
	stepBegun     = "begun"   // the transaction; nothing is read
	stepRead      = "read"    // which batch, and its row is locked
	stepApplied   = "applied" // its effects
	stepMoving    = "moving"  // all but the checkpoint
	stepMoved     = "moved"   // the checkpoint, and nothing is committed
	stepCommitted = "committed"
)

// runner takes one generation of a projection along the log.
type runner struct {
	Config
	pool       *pgxpool.Pool
	logger     *slog.Logger
	projection Projection
	generation int
	wake       chan struct{}
	end        context.CancelFunc

	// Of the subscriber's goroutine.
	look    *look
	size    int // positions of a batch
	looked  time.Time
	trouble trouble
}

// run takes batches until ctx ends, or the generation is gone.
func (r *runner) run(ctx context.Context) error {
	ctx, r.end = context.WithCancel(ctx)
	defer r.end()
	logger := watermill.NewSlogLoggerWithLevelMapping(r.logger, map[slog.Level]slog.Level{
		slog.LevelInfo: slog.LevelDebug, slog.LevelError: slog.LevelDebug, // the runner tells what matters
	})
	var never time.Duration
	subscriber, err := wsql.NewSubscriber(beginner{wsql.BeginnerFromPgx(r.pool), r}, wsql.SubscriberConfig{
		ConsumerGroup:  r.projection.Name(),
		AckDeadline:    &never, // which would end the transaction under the handler
		SchemaAdapter:  schema{r},
		OffsetsAdapter: offsets{r},
		BackoffManager: &backoff{runner: r, done: ctx.Done()},
	}, logger)
	if err != nil {
		return fmt.Errorf("subscribe projection %s: %w", r.projection.Name(), err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return fmt.Errorf("route projection %s: %w", r.projection.Name(), err)
	}
	router.AddConsumerHandler(r.projection.Name(), topic, subscriber, r.handle)
	if err := router.Run(ctx); err != nil {
		return fmt.Errorf("run projection %s: %w", r.projection.Name(), err)
	}
	return nil
}

// handle takes a batch. It always acks: see batchTx.work.
func (r *runner) handle(msg *message.Message) error {
	found, _ := wsql.TxFromContext(msg.Context())
	t, ok := found.(*batchTx)
	if !ok {
		return fmt.Errorf("a message came without the transaction of its batch: %s", msg.UUID)
	}
	t.work(func(tx pgx.Tx) error { return r.take(msg.Context(), tx, t.look.batch) })
	return nil
}

// take puts the effects of a batch into the view, or notes which event it cannot take.
func (r *runner) take(ctx context.Context, tx pgx.Tx, b *batch) error {
	if err := r.step(ctx, tx, stepRead); err != nil {
		return err
	}
	var err error
	if b.done, b.failed, err = r.applyAll(ctx, tx, b.Range); err != nil {
		return err
	}
	if err := r.step(ctx, tx, stepApplied); err != nil {
		return err
	}
	switch {
	case b.failed != nil:
		err = r.fail(ctx, tx, b)
	case b.building && b.done >= b.settled:
		err = r.switchOver(ctx, tx, b)
	}
	if err != nil {
		return err
	}
	return r.step(ctx, tx, stepMoving)
}

const failSQL = `-- async.fail
select leat.fail_projection($1, $2, $3, $4)`

// longestError of those that are kept.
const longestError = 1000

// fail notes that the event behind done is one that the projection cannot take.
func (r *runner) fail(ctx context.Context, tx pgx.Tx, b *batch) error {
	text := []rune(b.failed.Error())
	_, err := tx.Exec(ctx, failSQL, r.projection.Name(), r.generation, b.done+1, string(text[:min(len(text), longestError)]))
	return err
}

const switchSQL = `-- async.switch
select leat.switch_projection($1, $2)`

// switchOver lets queries read this generation. The checkpoint has to move first, since
// the other one must not be ahead.
func (r *runner) switchOver(ctx context.Context, tx pgx.Tx, b *batch) error {
	if _, err := tx.Exec(ctx, moveSQL, r.projection.Name(), r.generation, b.done); err != nil {
		return err
	}
	var switched bool
	if err := tx.QueryRow(ctx, switchSQL, r.projection.Name(), r.generation).Scan(&switched); err != nil {
		return err
	}
	if switched {
		r.logger.Info("projection rebuilt", "projection", r.projection.Name(), "generation", r.generation, "position", b.done)
	}
	return nil
}

// step lets a test end the batch.
func (r *runner) step(ctx context.Context, tx pgx.Tx, name string) error {
	if r.onStep == nil {
		return nil
	}
	return r.onStep(ctx, tx, name)
}
