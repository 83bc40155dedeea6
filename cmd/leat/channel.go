package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leat/api"
)

func channelCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "channel", Short: "List, declare, alter and delete channels"}
	cmd.AddCommand(
		channelListCommand(c), channelGetCommand(c), channelDeclareCommand(c),
		channelAlterCommand(c), channelDeleteCommand(c),
	)
	return cmd
}

func channelListCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all channels, with how many messages they hold",
	}
	past := addAsOf(cmd)
	cmd.RunE = c.remote(func(c *call) error {
		past.lookAt(c)
		channels, err := c.broker.Channels(c.ctx())
		if err != nil {
			return err
		}
		return c.show(api.ChannelList{Channels: channels}, func(t *table) {
			t.row("CHANNEL", "KIND", "READY", "DELAYED", "IN FLIGHT", "DEAD", "CIRCUITS", "OLDEST")
			for _, channel := range channels {
				if s := channel.Stream; s != nil {
					t.row(channel.Name, kindOf(channel), s.Messages, none, none, none, none, none)
					continue
				}
				if channel.Counts == nil {
					t.row(channel.Name, kindOf(channel), none, none, none, none, none, none)
					continue
				}
				n := channel.Counts
				t.row(channel.Name, kindOf(channel), n.Ready, n.Delayed, n.InFlight, n.Dead, openCircuits(channel), age(n.OldestReadyAge))
			}
		})
	})
	return cmd
}

func channelGetCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get <channel>",
		Short: "Show a channel: its policy, and how many messages it holds",
	}
	past := addAsOf(cmd)
	cmd.RunE = c.remote(func(c *call) error {
		past.lookAt(c)
		channel, err := c.broker.Channel(c.ctx(), c.args[0])
		if err != nil {
			return err
		}
		return c.show(channel, func(t *table) { channelTable(t, channel) })
	})
	return cmd
}

func channelDeclareCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "declare <channel>",
		Short: "Make a channel, or find that it exists with these settings",
	}
	kind := cmd.Flags().String("kind", "queue", "queue; stream: every consumer reads all of it, in order; or exchange: stores nothing, only routes along its links")
	mode := cmd.Flags().String("mode", "", "of a queue: standard, the default, or fifo: in order within each routing key")
	rule := cmd.Flags().String("type", "", "of an exchange, the rule of its links: direct, fanout, topic or headers")
	policy := addPolicyFlags(cmd)
	cmd.RunE = c.remote(func(c *call) error {
		spec := api.ChannelSpec{Kind: *kind, Mode: *mode, Type: *rule, Policy: policy.patch(cmd)}
		channel, err := c.broker.DeclareChannel(c.ctx(), c.args[0], spec)
		if err != nil {
			return err
		}
		return c.show(channel, func(t *table) { channelTable(t, channel) })
	})
	return cmd
}

func channelAlterCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alter <channel>",
		Short: "Change settings of a channel; those that are not given stay",
	}
	policy := addPolicyFlags(cmd)
	cmd.RunE = c.remote(func(c *call) error {
		patch := api.ChannelPatch{Policy: policy.patch(cmd)}
		if patch == (api.ChannelPatch{}) {
			return wrongUsage(cmd, "nothing to alter: give at least one setting")
		}
		channel, err := c.broker.AlterChannel(c.ctx(), c.args[0], patch)
		if err != nil {
			return err
		}
		return c.show(channel, func(t *table) { channelTable(t, channel) })
	})
	return cmd
}

func channelDeleteCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete <channel>",
		Short: "Delete a channel and its links; its history stays in the log",
	}
	force := cmd.Flags().Bool("force", false, "also when it holds messages, or takes the dead letters of queues")
	cmd.RunE = c.remote(func(c *call) error {
		if err := c.broker.DeleteChannel(c.ctx(), c.args[0], *force); err != nil {
			return err
		}
		return c.say(struct{}{}, "%s is deleted", plain(c.args[0]))
	})
	return cmd
}

func channelTable(t *table, c api.Channel) {
	t.row("channel", c.Name)
	t.row("kind", c.Kind)
	if c.Mode != "" {
		t.row("mode", c.Mode)
	}
	if c.Type != "" {
		t.row("type", c.Type)
	}
	t.row("declared at", c.DeclaredAt)
	t.row("epoch", c.Epoch)
	if c.Counts != nil {
		n := *c.Counts
		t.row("ready", n.Ready)
		t.row("delayed", n.Delayed)
		t.row("in flight", n.InFlight)
		t.row("dead", n.Dead)
		if shown := openCircuits(c); shown != none {
			t.row("open circuits", shown)
		}
		t.row("oldest ready", age(n.OldestReadyAge))
	}
	if c.Stream != nil {
		t.row("first offset", c.Stream.First)
		t.row("next offset", c.Stream.End)
		t.row("messages", c.Stream.Messages)
		t.row("bytes", c.Stream.Bytes)
		t.row("points", c.Stream.Points)
	}
	if c.Policy == nil {
		return
	}
	t.row("dedup window", c.Policy.DedupWindow)
	if c.Policy.QueuePolicy != nil {
		policyTable(t, *c.Policy.QueuePolicy)
	}
	if r := c.Policy.Retention; r != nil {
		t.row("kept for", orElse(r.Age, "ever"))
		t.row("kept bytes", orAll(r.Bytes))
		t.row("kept messages", orAll(r.Messages))
	}
}

// orAll is a bound of what is kept.
func orAll(n int64) any {
	if n == 0 {
		return "all"
	}
	return n
}

func policyTable(t *table, p api.QueuePolicy) {
	classes := make([]string, len(p.NonRetryable))
	for i, class := range p.NonRetryable {
		classes[i] = plain(class)
	}
	t.row("lease", p.Lease)
	t.row("max deliveries", p.MaxDeliveries)
	t.row("retry strategy", p.Retry.Strategy)
	t.row("base delay", p.Retry.BaseDelay)
	t.row("max delay", p.Retry.MaxDelay)
	t.row("jitter", p.Retry.Jitter)
	t.row("non-retryable", orNone(strings.Join(classes, ", ")))
	t.row("dead-letter expired", p.DeadLetterExpired)
	t.row("priority ageing", p.PriorityAgeing)
	t.row("dead-letter to", orNone(p.DeadLetterTo))
	t.row("dead letters kept", orElse(p.DeadLetterRetention, "for ever"))
	if p.Circuit != nil {
		t.row("circuit", p.Circuit.Enabled)
		t.row("circuit cool-down", orElse(p.Circuit.CoolDown, "never by itself"))
		t.row("circuit threshold", p.Circuit.Threshold)
	}
}

func countsOf(c api.Channel) api.Counts {
	if c.Counts == nil {
		return api.Counts{}
	}
	return *c.Counts
}

// openCircuits counts the keys that are shut, where there can be any.
func openCircuits(c api.Channel) string {
	if c.Policy == nil || c.Policy.QueuePolicy == nil || c.Policy.Circuit == nil {
		return none
	}
	return strconv.FormatInt(countsOf(c).OpenCircuits, 10)
}

// kindOf is what a channel is, in a word or two.
func kindOf(c api.Channel) string {
	if c.Type != "" {
		return c.Type + " " + c.Kind
	}
	if c.Mode == "" {
		return c.Kind
	}
	return c.Mode
}

// orElse is a duration, or what none of it means.
func orElse(d api.Duration, text string) any {
	if d == 0 {
		return text
	}
	return d
}

// age is a duration that nobody reads to the nanosecond.
func age(d api.Duration) string {
	if d == 0 {
		return none
	}
	return time.Duration(d).Round(time.Millisecond).String()
}
