package main

import (
	"context"

	"github.com/spf13/cobra"

	"leat/api"
)

func verifyCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the queue views with the log, message by message",
		Long:  "Compare the queue views with the log, message by message. Changes nothing.\nExit code 3: they differ.",
	}
	limit := cmd.Flags().Int("limit", 100, "show at most this many differences, 1 to 1000")
	fromCheckpoint := cmd.Flags().Bool("from-checkpoint", false, "read only what came after the last checkpoint, not the whole log")
	c.onViews(cmd, func(ctx context.Context, k keeper, p printer) error {
		if *limit < 1 || *limit > 1000 {
			return wrongUsage(cmd, "--limit must be from 1 to 1000")
		}
		done := spin("verifying")
		result, err := k.Verify(ctx, *fromCheckpoint, *limit)
		done()
		if err != nil {
			return err
		}
		if err := p.show(result, func(t *table) { differences(t, result) }); err != nil {
			return err
		}
		if !result.Equal {
			return errDifferent
		}
		return nil
	})
	return cmd
}

func differences(t *table, result api.VerifyResult) {
	if result.Equal {
		t.row("the queue views are what the log says")
		return
	}
	t.row("MESSAGE", "SAYS", "WHAT")
	for _, d := range result.Differences {
		t.row(d.MessageID, "log", orNone(string(d.Log)))
		t.row("", "view", orNone(string(d.View)))
	}
}
