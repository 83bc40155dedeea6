package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

func dlqCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "dlq", Short: "List dead letters, bring them back to life, or remove them"}
	cmd.AddCommand(dlqListCommand(c), dlqRecoverCommand(c), dlqPurgeCommand(c))
	return cmd
}

// deadFlags narrow a choice of dead letters.
type deadFlags struct {
	reason        string
	before, after moment
}

func (f *deadFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.reason, "reason", "", "only of this reason: "+strings.Join(eventstore.DeathReasons(), ", "))
	flags.Var(&f.after, "after", "only those that died at this time or later")
	flags.Var(&f.before, "before", "only those that died earlier, or are older than that")
}

func dlqListCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list <queue>",
		Short: "List the dead letters of a queue, with their reasons",
	}
	page := addPageFlags(cmd)
	var dead deadFlags
	dead.add(cmd)
	past := addAsOf(cmd)
	cmd.RunE = c.remote(func(c *call) error {
		past.lookAt(c)
		filter, err := page.read(cmd)
		if err != nil {
			return err
		}
		filter.Reason = dead.reason
		found, err := c.broker.DeadLetters(c.ctx(), c.args[0], client.DeadLettersFilter{
			MessagesFilter: filter, DiedAfter: dead.after.Time, DiedBefore: dead.before.Time,
		})
		if err != nil {
			return err
		}
		return c.show(found, func(t *table) {
			t.row("MESSAGE", "KEY", "ATTEMPTS", "DIED AT", "REASON", "PAYLOAD")
			for _, m := range found.DeadLetters {
				t.row(m.MessageID, plain(m.RoutingKey), m.Attempts, m.DiedAt, reasonText(m.Reason, m.Detail, m.ErrorClass), preview(m.Content))
			}
			more(t, found.NextCursor)
		})
	})
	return cmd
}

// messageIDs is a flag whose values are ids of messages.
type messageIDs []eventstore.MessageID

// String is "" where none was given: --help has no default to show.
func (m *messageIDs) String() string {
	texts := make([]string, len(*m))
	for i, id := range *m {
		texts[i] = id.String()
	}
	return strings.Join(texts, ",")
}

// Set reads more of them.
func (m *messageIDs) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		id, err := eventstore.ParseMessageID(strings.TrimSpace(word))
		if err != nil {
			return err
		}
		*m = append(*m, id)
	}
	return nil
}

// Type is how --help names the value.
func (m *messageIDs) Type() string { return "message-id" }

// choiceFlags choose dead letters to do something with: by id, by a filter, or all.
type choiceFlags struct {
	deadFlags
	key string
	ids messageIDs
	all bool
}

func addChoiceFlags(cmd *cobra.Command) *choiceFlags {
	f := &choiceFlags{}
	flags := cmd.Flags()
	flags.Var(&f.ids, "id", "this message; once for each, or with commas between")
	flags.StringVarP(&f.key, "key", "k", "", "those of this routing key")
	flags.BoolVar(&f.all, "all", false, "all of the queue")
	f.add(cmd)
	return f
}

// read is the choice: exactly one of the three.
func (f *choiceFlags) read(cmd *cobra.Command) (ids []eventstore.MessageID, filter *api.DeadLettersFilter, err error) {
	filtered := false
	for _, name := range []string{"key", "reason", "before", "after"} {
		filtered = filtered || cmd.Flags().Changed(name)
	}
	ways := 0
	for _, given := range []bool{len(f.ids) > 0, filtered, f.all} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, nil, wrongUsage(cmd, "say which: by --id, by --key, --reason, --before and --after, or --all")
	}
	if filtered {
		filter = &api.DeadLettersFilter{
			RoutingKey: given(cmd, "key", &f.key), Reason: given(cmd, "reason", &f.reason), DiedAfter: orNil(f.after.Time), DiedBefore: orNil(f.before.Time),
		}
	}
	return f.ids, filter, nil
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

const choiceHelp = "\nExit code 5: some of the ids were refused; the others are done."

func dlqRecoverCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover <queue>",
		Short: "Bring dead letters back to life",
		Long: "Bring dead letters back to life: in their queue, under the same ids and before all newer\n" +
			"messages of their key; or, with --to, as new messages of another channel. What is chosen by a\n" +
			"filter or --all stays dead while the circuit of its key is open. Interrupted, it keeps what it\n" +
			"has done, and can be run again." + choiceHelp,
		Example: "  leat dlq recover orders --id 4711\n" +
			"  leat dlq recover orders --reason retries_exhausted --after 2h\n" +
			"  leat dlq recover orders --all --ttl 1h",
	}
	choice := addChoiceFlags(cmd)
	ttl := cmd.Flags().Duration("ttl", 0, "never deliver them later than this from now (default: whenever)")
	to := cmd.Flags().String("to", "", "another channel, instead of the queue")
	cmd.RunE = c.remote(func(c *call) error {
		ids, filter, err := choice.read(cmd)
		if err != nil {
			return err
		}
		if *ttl < 0 {
			return wrongUsage(cmd, "--ttl must not be negative")
		}
		progress, done := count("recover", progressbar.OptionShowIts())
		shown := int64(0)
		result, err := c.broker.Recover(c.ctx(), c.args[0],
			api.RecoverRequest{IDs: ids, Filter: filter, All: choice.all, TTL: api.Duration(*ttl), To: given(cmd, "to", to)},
			func(r api.RecoverResult) {
				progress(int(r.Recovered - shown))
				shown = r.Recovered
			})
		done()
		if err != nil {
			return soFar(err, shown, "recovered")
		}
		err = c.show(result, func(t *table) {
			text := fmt.Sprintf("%d recovered", result.Recovered)
			if result.CircuitOpen > 0 {
				text += fmt.Sprintf(", %d left behind open circuits", result.CircuitOpen)
			}
			if others := result.Remaining - result.CircuitOpen; others > 0 {
				text += fmt.Sprintf(", %d left", others)
			}
			t.row(text)
			failedMessages(t, result.Failed)
		})
		return refused(err, result.Failed)
	})
	return cmd
}

func dlqPurgeCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge <queue>",
		Short: "Remove dead letters for good; the log keeps them",
		Long:  "Remove dead letters for good; the log keeps them. Asks first, on a terminal; elsewhere it needs --yes." + choiceHelp,
	}
	choice := addChoiceFlags(cmd)
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask")
	cmd.RunE = c.remote(func(c *call) error {
		ids, filter, err := choice.read(cmd)
		if err != nil {
			return err
		}
		if !*yes {
			if err := c.confirm(fmt.Sprintf("Remove these dead letters of %s?", c.args[0])); err != nil {
				return err
			}
		}
		progress, done := count("purge", progressbar.OptionShowIts())
		shown := int64(0)
		result, err := c.broker.PurgeDeadLetters(c.ctx(), c.args[0],
			api.PurgeDeadLettersRequest{IDs: ids, Filter: filter, All: choice.all},
			func(r api.PurgeDeadLettersResult) {
				progress(int(r.Purged - shown))
				shown = r.Purged
			})
		done()
		if err != nil {
			return soFar(err, shown, "removed")
		}
		err = c.show(result, func(t *table) {
			t.row(fmt.Sprintf("%d removed", result.Purged))
			failedMessages(t, result.Failed)
		})
		return refused(err, result.Failed)
	})
	return cmd
}

// soFar tells what was done before an error.
func soFar(err error, n int64, verb string) error {
	if n == 0 {
		return err
	}
	return fmt.Errorf("%d %s before: %w", n, verb, err)
}

func failedMessages(t *table, failed []api.FailedMessage) {
	for _, f := range failed {
		t.row(f.ID, f.Code, f.Detail)
	}
}

func refused(err error, failed []api.FailedMessage) error {
	if err == nil && len(failed) > 0 {
		return errSomeStay
	}
	return err
}
