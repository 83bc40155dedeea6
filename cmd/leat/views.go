package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
	"leat/projections"
	"leat/queries"
)

// keeper is who can verify and rebuild the queue views: a running broker, or
// this process on the broker's database.
type keeper interface {
	Verify(ctx context.Context, fromCheckpoint bool, limit int) (api.VerifyResult, error)
	Rebuild(ctx context.Context) (api.RebuildResult, error)
	Progress(ctx context.Context) (done, total int64, err error)
	VerifyLog(ctx context.Context, cursor, expect string) (api.ChainPage, error)
	Close()
}

// remote asks a running broker.
type remote struct{ *client.Client }

// Progress says how far a rebuild is.
func (r remote) Progress(ctx context.Context) (done, total int64, err error) {
	status, err := r.Status(ctx)
	if err != nil || status.Rebuild == nil {
		return 0, 0, err
	}
	return status.Rebuild.Done, status.Rebuild.Total, nil
}

// direct works on the database itself.
type direct struct {
	pool  *pgxpool.Pool
	views viewsAPI
}

// Verify compares the log with the live views.
func (d direct) Verify(ctx context.Context, fromCheckpoint bool, limit int) (api.VerifyResult, error) {
	differences, err := d.views.Verify(ctx, fromCheckpoint, limit)
	return api.VerifyResult{Equal: len(differences) == 0, Differences: differences}, eventstore.FromPg(err)
}

// Rebuild makes the live views anew.
func (d direct) Rebuild(ctx context.Context) (api.RebuildResult, error) {
	began := time.Now()
	messages, err := d.views.Rebuild(ctx)
	return api.RebuildResult{Messages: messages, Took: api.Duration(time.Since(began))}, eventstore.FromPg(err)
}

// Progress says how far a rebuild is.
func (d direct) Progress(ctx context.Context) (done, total int64, err error) {
	status, err := queries.New(d.pool).Status(ctx)
	if err != nil || status.ViewsAlive {
		return 0, 0, err
	}
	return status.Rebuild.Done, status.Rebuild.Total, nil
}

// VerifyLog holds a page of the log against its seals.
func (d direct) VerifyLog(ctx context.Context, cursor, expect string) (api.ChainPage, error) {
	store := eventstore.New(d.pool)
	var (
		after  eventstore.ChainPoint
		digest *eventstore.Digest
		err    error
	)
	if after, err = store.ChainStart(ctx); cursor != "" {
		after, err = eventstore.ParseChainPoint(cursor)
	}
	if err != nil {
		return api.ChainPage{}, err
	}
	if expect != "" {
		d, err := eventstore.ParseDigest(expect)
		if err != nil {
			return api.ChainPage{}, err
		}
		digest = &d
	}
	page, err := store.VerifyChain(ctx, after, digest)
	return api.ChainPageOf(page), err
}

// Close closes the connections.
func (d direct) Close() { d.pool.Close() }

// onViews adds the flag for the database, and makes of do what cobra runs.
func (c *cli) onViews(cmd *cobra.Command, do func(ctx context.Context, k keeper, p printer) error) {
	url := database(cmd, "; without it the broker is asked")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		k, err := c.keeper(cmd, *url)
		if err != nil {
			return err
		}
		defer k.Close()
		return do(cmd.Context(), k, c.printer(cmd))
	}
}

// keeper takes the database where one is given; a flag counts more than a
// variable of the environment.
func (c *cli) keeper(cmd *cobra.Command, url string) (keeper, error) {
	askBroker, askDatabase := cmd.Flags().Changed("url"), cmd.Flags().Changed("database-url")
	if askBroker && askDatabase {
		return nil, wrongUsage(cmd, "give --url or --database-url, not both")
	}
	if url == "" || askBroker {
		server, err := c.connect()
		return remote{server}, err
	}
	pool, err := connect(cmd.Context(), url)
	if err != nil {
		return nil, err
	}
	return direct{pool, viewsAPI{projections.New(pool, newLogger())}}, nil
}

func rebuildCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make the queue views anew from the log",
		Long:  "Make the queue views anew from the log. Polls and settlements wait meanwhile, publishes do not.",
	}
	c.onViews(cmd, func(ctx context.Context, k keeper, p printer) error {
		done := follow(ctx, "rebuilding", k.Progress)
		result, err := k.Rebuild(ctx)
		done()
		if err != nil {
			return err
		}
		return p.say(result, "%d messages rebuilt in %s", result.Messages, time.Duration(result.Took).Round(time.Millisecond))
	})
	return cmd
}
