package async

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Steps of a batch, in their order.
var Steps = []string{stepBegun, stepRead, stepApplied, stepMoving, stepMoved, stepCommitted}

// OnStep lets f end each batch at a step. tx is nil behind the commit.
func (c Config) OnStep(f func(ctx context.Context, tx pgx.Tx, step string) error) Config {
	c.onStep = f
	return c
}

// MostWait bounds how long a projection waits after errors.
func (c Config) MostWait(d time.Duration) Config {
	c.mostWait = d
	return c
}

// Statements are all the statements of the package.
func Statements() []string {
	return []string{
		nextSQL, moveSQL, failSQL, switchSQL, declareSQL, statesSQL, lockRetiredSQL, forgetSQL, stopSQL, resumeSQL, rebuildSQL,
		publishedSQL, happenedSQL, loadMinutesSQL, loadPendingSQL, loadSpanSQL, saveMinutesSQL, savePendingSQL, emptyPendingSQL,
		deleteChannelSQL, dropMinutesSQL, dropPendingSQL, consumersSQL, dropConsumersSQL, failuresSQL, dropFailuresSQL,
	}
}
