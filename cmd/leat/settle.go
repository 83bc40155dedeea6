package main

import (
	"bufio"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"leat/api"
)

const receiptsHelp = "\nA receipt - stands for those that stdin has, with white space between.\nExit code 5: some receipts were refused; the others are settled."

func ackCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "ack <queue> <receipt>...",
		Short: "Say that messages are processed",
		Long:  "Say that messages are processed." + receiptsHelp,
		Example: `  leat ack orders 8:3
  leat poll orders -n 10 | awk 'NR > 1 { print $1 }' | leat ack orders -`,
		RunE: c.settle(func(c *call, receipts []string) (api.SettleResult, error) {
			return c.broker.Ack(c.ctx(), c.args[0], receipts...)
		}),
	}
}

func nackCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nack <queue> <receipt>...",
		Short: "Say that messages were not processed: retry, dead-letter or discard them",
		Long:  "Say that messages were not processed." + receiptsHelp,
	}
	flags := cmd.Flags()
	action := flags.String("action", "retry", "retry, deadLetter or discard")
	delay := flags.Duration("delay", 0, "before the retry (default: as the queue's policy says)")
	reason := flags.String("reason", "", "why, for people; the log keeps it")
	class := flags.String("error-class", "", "why, for machines; one of the queue's non-retryable classes makes the messages dead")
	cmd.RunE = c.settle(func(c *call, receipts []string) (api.SettleResult, error) {
		return c.broker.Nack(c.ctx(), c.args[0], api.NackRequest{
			Receipts: receipts, Action: *action, Delay: (*api.Duration)(given(cmd, "delay", delay)),
			Reason: *reason, ErrorClass: *class,
		})
	})
	return cmd
}

func extendCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "extend <queue> <receipt>...",
		Short: "Let leases end later",
		Long:  "Let leases end later." + receiptsHelp,
	}
	lease := cmd.Flags().Duration("lease", 0, "from now on (default: the queue's)")
	cmd.RunE = c.settle(func(c *call, receipts []string) (api.SettleResult, error) {
		return c.broker.Extend(c.ctx(), c.args[0], api.ExtendRequest{
			Receipts: receipts, Lease: (*api.Duration)(given(cmd, "lease", lease)),
		})
	})
	return cmd
}

func releaseCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "release <queue> <receipt>...",
		Short: "Give messages back without counting the attempt",
		Long:  "Give messages back without counting the attempt." + receiptsHelp,
		RunE: c.settle(func(c *call, receipts []string) (api.SettleResult, error) {
			return c.broker.Release(c.ctx(), c.args[0], receipts...)
		}),
	}
}

// settle makes of do what cobra runs: it collects the receipts and shows what
// became of them.
func (c *cli) settle(do func(c *call, receipts []string) (api.SettleResult, error)) func(*cobra.Command, []string) error {
	return c.remote(func(c *call) error {
		receipts, err := c.receipts()
		if err != nil {
			return err
		}
		result, err := do(c, receipts)
		if err != nil {
			return err
		}
		if err := c.show(result, func(t *table) { settled(t, result) }); err != nil {
			return err
		}
		if len(result.Failed) > 0 {
			return errSomeRefused
		}
		return nil
	})
}

// receipts are the arguments after the queue, and what stdin has for a "-".
func (c *call) receipts() ([]string, error) {
	receipts := slices.Clone(c.args[1:])
	at := slices.Index(receipts, "-")
	if at < 0 {
		return receipts, nil
	}
	receipts = slices.Delete(receipts, at, at+1)
	words := bufio.NewScanner(c.cmd.InOrStdin())
	words.Split(bufio.ScanWords)
	for words.Scan() {
		receipts = append(receipts, words.Text())
	}
	if err := words.Err(); err != nil {
		return nil, fmt.Errorf("read receipts: %w", err)
	}
	return receipts, nil
}

func settled(t *table, r api.SettleResult) {
	text := fmt.Sprintf("%d settled", r.Settled)
	if r.LeaseUntil != nil {
		text = fmt.Sprintf("%d extended until %s", r.Settled, cellText(r.LeaseUntil))
	}
	if r.AlreadySettled > 0 {
		text += fmt.Sprintf(", %d had been before", r.AlreadySettled)
	}
	t.row(text)
	for _, failed := range r.Failed {
		t.row(failed.Receipt, failed.Code, failed.Detail)
	}
}
