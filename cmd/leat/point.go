package main

import (
	"github.com/spf13/cobra"

	"leat/api"
	"leat/eventstore"
)

func pointCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "point",
		Short: "List, make, move and delete the replication points of streams",
		Long: "List, make, move and delete the replication points of streams. A point is the durable place of a\n" +
			"consumer, or of a group of consumers, in a stream: who subscribes with it goes on there.",
	}
	cmd.AddCommand(
		pointListCommand(c), pointShowCommand(c), pointCreateCommand(c), pointCommitCommand(c), pointResetCommand(c),
		pointDeleteCommand(c),
	)
	return cmd
}

func pointListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "list <stream>",
		Short: "List the points of a stream, and how far they lag",
		RunE: c.remote(func(c *call) error {
			page, err := c.broker.Points(c.ctx(), c.args[0])
			if err != nil {
				return err
			}
			return c.show(page, func(t *table) {
				t.row("POINT", "NEXT", "LAG", "AGE", "PARTITIONS", "READERS")
				for i := range page.Points {
					p := &page.Points[i]
					t.row(p.Point, p.Next, p.Lag, p.Age, max(1, len(p.Partitions)), len(p.Members))
				}
			})
		}),
	}
}

func pointShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show <stream> <point>",
		Short: "Show a point, and who reads with it",
		RunE: c.remote(func(c *call) error {
			point, err := c.broker.Point(c.ctx(), c.args[0], c.args[1])
			return c.point(&point, err)
		}),
	}
}

func pointCreateCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create <stream> <point>",
		Short: "Make a point, or find that it exists; then it stays where it is",
	}
	start := startFlags(cmd, "latest")
	partitions := cmd.Flags().Int("partitions", 0, "2 to 64: a group shares the stream by routing key (default as the point is, 1 for a new one)")
	cmd.RunE = c.remote(func(c *call) error {
		point, err := c.broker.DeclarePoint(c.ctx(), c.args[0], c.args[1], api.PointSpec{From: start.From, Epoch: start.Epoch, Partitions: *partitions})
		return c.point(&point, err)
	})
	return cmd
}

func pointCommitCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "commit <stream> <point> <offset>",
		Short: "Say that everything up to and with an offset was processed",
		Long: "Say that everything up to and with an offset was processed, in all partitions. It counts whoever\n" +
			"reads with the point, and never moves it back: leat point reset does.",
	}
	epoch := cmd.Flags().Int64("epoch", 0, "refuse if the stream is another one than that of this epoch")
	cmd.RunE = c.remote(func(c *call) error {
		offset, err := eventstore.ParseOffset(c.args[2])
		if err != nil {
			return wrongUsage(cmd, "%q is not an offset", c.args[2])
		}
		point, err := c.broker.CommitPoint(c.ctx(), c.args[0], c.args[1], api.PointCommit{Epoch: eventstore.Position(*epoch), Offset: &offset})
		return c.point(&point, err)
	})
	return cmd
}

func pointResetCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset <stream> <point>",
		Short: "Move a point anywhere",
		Long: "Move a point anywhere, back or ahead. Who reads with it is disconnected, and begins there when it\n" +
			"comes again.",
	}
	start := startFlags(cmd, "")
	cmd.RunE = c.remote(func(c *call) error {
		if start.From == "" {
			return wrongUsage(cmd, "say where to: --from earliest, latest, an offset, or a time")
		}
		point, err := c.broker.ResetPoint(c.ctx(), c.args[0], c.args[1], *start)
		return c.point(&point, err)
	})
	return cmd
}

func pointDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete <stream> <point>",
		Short: "Delete a point, and end the subscriptions that read with it",
		RunE: c.remote(func(c *call) error {
			if err := c.broker.DeletePoint(c.ctx(), c.args[0], c.args[1]); err != nil {
				return err
			}
			return c.say(struct{}{}, "point %s of %s is deleted", c.args[1], c.args[0])
		}),
	}
}

// startFlags are the flags for a place in a stream.
func startFlags(cmd *cobra.Command, otherwise string) *api.PointStart {
	var start api.PointStart
	cmd.Flags().StringVar(&start.From, "from", otherwise, "earliest, latest, an offset, or a time such as 2006-01-02T15:04:05Z")
	cmd.Flags().Int64Var((*int64)(&start.Epoch), "epoch", 0, "of the offset: refuse if the stream is another one")
	return &start
}

// point shows a point, unless there was an error.
func (c *call) point(p *api.Point, err error) error {
	if err != nil {
		return err
	}
	return c.show(p, func(t *table) {
		t.row("stream", p.Stream)
		t.row("point", p.Point)
		t.row("epoch", p.Epoch)
		t.row("next", p.Next)
		t.row("end", p.End)
		t.row("lag", p.Lag)
		t.row("age", p.Age)
		t.row("created at", p.CreatedAt)
		for _, q := range p.Partitions {
			t.row("partition", q.Partition, q.Next, orNone(q.Member))
		}
		for _, m := range p.Members {
			t.row("reader", plain(m.Member), "at "+m.Broker)
		}
	})
}
