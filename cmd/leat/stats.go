package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
)

func statsCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats [channel]",
		Short: "What happened in channels, and how long messages took",
		Long: "What happened in channels in the last hour, or since another time: counts, and the time from the publish, or\n" +
			"the due time, to the first delivery and to the ack. Percentiles are right by 1 %. -o json has all counts.",
	}
	var since, until moment
	flags := cmd.Flags()
	flags.Var(&since, "since", "from this time on, or so long ago; at most 31 days before --until (default 1h before it)")
	flags.Var(&until, "until", "up to this time (default now)")
	step := flags.Duration("step", 0, "in intervals of so long, whole minutes (default: one)")
	cmd.RunE = c.remote(func(c *call) error {
		if *step < 0 || *step%time.Minute != 0 {
			return wrongUsage(cmd, "--step must be whole minutes")
		}
		f := client.StatisticsFilter{From: since.Time, To: until.Time, Step: *step}
		if len(c.args) > 0 {
			f.Channel = c.args[0]
		}
		list, err := c.broker.Statistics(c.ctx(), f)
		if err != nil {
			return err
		}
		return c.show(list, func(t *table) {
			t.row("CHANNEL", "FROM", "PUBLISHED", "COPIED", "DELIVERED", "ACKED", "RETRIED", "DEAD", "FIRST DELIVERY P50", "P99", "ACK P50", "P99")
			for _, s := range list.Statistics {
				t.row(s.Channel, s.From, s.Published, s.Copied, s.Delivered, s.Acked, s.Retried+s.LeaseExpired, s.DeadLettered,
					percentile(s.FirstDelivery, s.FirstDelivery.P50), percentile(s.FirstDelivery, s.FirstDelivery.P99),
					percentile(s.Ack, s.Ack.P50), percentile(s.Ack, s.Ack.P99))
			}
		})
	})
	return cmd
}

func percentile(l api.Latencies, d api.Duration) string {
	if l.Count == 0 {
		return none
	}
	return d.String()
}

func consumersCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "consumers [queue]", Short: "Who took or settled messages, the last one first"}
	limit := cmd.Flags().IntP("limit", "n", 100, "at most this many, 1 to 1000")
	cmd.RunE = c.remote(func(c *call) error {
		f, err := activityFilter(cmd, c.args, *limit)
		if err != nil {
			return err
		}
		list, err := c.broker.Consumers(c.ctx(), f)
		if err != nil {
			return err
		}
		return c.show(list, func(t *table) {
			t.row("CHANNEL", "CONSUMER", "LAST SEEN", "DELIVERED", "ACKED", "FAILED", "RELEASED")
			for _, a := range list.Consumers {
				t.row(a.Channel, orNone(a.Consumer), a.LastSeen, a.Delivered, a.Acked, a.Failed, a.Released)
			}
		})
	})
	return cmd
}

func failuresCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "failures [queue]", Short: "Which routing keys failed, and why, most failures first"}
	limit := cmd.Flags().IntP("limit", "n", 100, "at most this many, 1 to 1000")
	cmd.RunE = c.remote(func(c *call) error {
		f, err := activityFilter(cmd, c.args, *limit)
		if err != nil {
			return err
		}
		list, err := c.broker.Failures(c.ctx(), f)
		if err != nil {
			return err
		}
		return c.show(list, func(t *table) {
			t.row("CHANNEL", "KEY", "REASON", "FAILURES", "DEAD", "LAST", "LAST MESSAGE")
			for _, f := range list.Failures {
				t.row(f.Channel, plain(f.RoutingKey), orNone(f.Reason), f.Failures, f.Dead, f.LastAt, f.LastMessage)
			}
		})
	})
	return cmd
}

func activityFilter(cmd *cobra.Command, args []string, limit int) (f client.ActivityFilter, err error) {
	if limit < 1 || limit > 1000 {
		return f, wrongUsage(cmd, "--limit must be from 1 to 1000")
	}
	f.Limit = limit
	if len(args) > 0 {
		f.Channel = args[0]
	}
	return f, nil
}

// lagText is how far behind the log a projection is, and why it stays there.
func lagText(p *api.Projection) string {
	switch {
	case p.Failure != nil:
		return fmt.Sprintf("waits at position %d: %s", p.Failure.Position, plain(p.Failure.Error))
	case p.Stopped:
		return fmt.Sprintf("stopped, %d positions behind", p.LagPositions)
	case p.LagPositions == 0:
		return "up to date"
	default:
		return fmt.Sprintf("%d positions, %s", p.LagPositions, time.Duration(p.Lag).Round(time.Millisecond))
	}
}
