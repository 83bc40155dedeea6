package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
)

func projectionCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projection",
		Short: "Look after the views that follow the log behind its commits",
		Long: "Look after the views that follow the log behind its commits: statistics, consumers and failures. One that\n" +
			"meets an event that it cannot take waits there, alone, until somebody says retry or skip.",
	}
	turn := func(verb, short, done, same string, do func(*client.Client, context.Context, string) (api.ProjectionResult, error)) *cobra.Command {
		verbs := &cobra.Command{
			Use: verb + " <projection>", Short: short,
			RunE: c.remote(func(c *call) error {
				result, err := do(c.broker, c.ctx(), c.args[0])
				if err != nil {
					return err
				}
				if !result.Changed {
					return c.say(result, "%s", same)
				}
				return c.say(result, "%s", done)
			}),
		}
		cmd.AddCommand(verbs)
		return verbs
	}
	cmd.AddCommand(projectionListCommand(c))
	turn("stop", "Stop it, at all brokers", "stopped", "it was stopped before", (*client.Client).StopProjection)
	turn("start", "Let it go on", "started", "it was not stopped", (*client.Client).StartProjection)
	force := false
	turn("rebuild", "Build it anew, beside the one that is read until the new one has caught up", "being rebuilt; leat projection list shows how far it is",
		"it is being rebuilt already", func(c *client.Client, ctx context.Context, name string) (api.ProjectionResult, error) {
			if force {
				return c.ForceRebuildProjection(ctx, name)
			}
			return c.RebuildProjection(ctx, name)
		}).Flags().BoolVar(&force, "force", false, "also of a log that has lost its beginning, and let go what is known of it")
	turn("retry", "Let it try the event again that it could not take", "it tries again", "it has not failed", (*client.Client).RetryProjection)
	turn("skip", "Let it go on behind the event that it could not take", "it goes on behind the event", "it has not failed", (*client.Client).SkipProjection)
	return cmd
}

func projectionListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the projections with their lag",
		RunE: c.remote(func(c *call) error {
			list, err := c.broker.Projections(c.ctx())
			if err != nil {
				return err
			}
			return c.show(list, func(t *table) {
				t.row("PROJECTION", "GENERATION", "STATE", "POSITION", "MOVED", "LAG")
				for i := range list.Projections {
					p := &list.Projections[i]
					t.row(p.Name, p.Generation, p.State, p.Position, p.MovedAt, lagText(p))
				}
			})
		}),
	}
}

// projectionsText is a line of the status.
func projectionsText(list []api.Projection) string {
	var texts []string
	for i := range list {
		texts = append(texts, fmt.Sprintf("%s %s: %s", list[i].Name, list[i].State, lagText(&list[i])))
	}
	return orNone(strings.Join(texts, "; "))
}
