package main

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

func linkCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "link", Short: "Declare, list, alter and delete links between channels"}
	cmd.AddCommand(
		linkDeclareCommand(c), linkListCommand(c), linkShowCommand(c), linkSwitchCommand(c, true), linkSwitchCommand(c, false),
		linkAlterCommand(c), linkDeleteCommand(c),
	)
	return cmd
}

func linkDeclareCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "declare <source> <target>",
		Short: "Make a link, or find that it exists with these settings",
		Long: "Make a link, or find that it exists with these settings. What is published into the source\n" +
			"and matches is copied to the target in the same transaction.",
	}
	flags := cmd.Flags()
	match := flags.String("match", "", "all, exact, topic or headers; default what the exchange fixes, of queues all")
	pattern := flags.StringP("pattern", "p", "", "exact: the routing key; topic: words with dots between, * is one word, # any number")
	headers := flags.String("headers", "", "headers: a JSON object of names and values")
	mode := flags.String("headers-mode", "", "headers: all of them, the default, or any")
	rewrite := flags.String("rewrite-key", "", "routing key of the copies; default that of the message")
	disabled := flags.Bool("disabled", false, "copy nothing until it is enabled")
	cmd.RunE = c.remote(func(c *call) error {
		spec := api.LinkSpec{
			Source: c.args[0], Target: c.args[1], RewriteKey: given(cmd, "rewrite-key", rewrite),
			Match: api.Match{Type: *match, Pattern: given(cmd, "pattern", pattern), Mode: *mode},
		}
		if cmd.Flags().Changed("headers") {
			if !json.Valid([]byte(*headers)) {
				return wrongUsage(cmd, "--headers must be a JSON object")
			}
			spec.Match.Headers = json.RawMessage(*headers)
		}
		if cmd.Flags().Changed("disabled") {
			spec.Enabled = new(!*disabled)
		}
		link, err := c.broker.DeclareLink(c.ctx(), spec)
		return c.link(link, err)
	})
	return cmd
}

func linkListCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List links"}
	var filter client.LinksFilter
	flags := cmd.Flags()
	flags.StringVar(&filter.Source, "source", "", "only links that lead from this channel")
	flags.StringVar(&filter.Target, "target", "", "only links that lead to this channel")
	flags.IntVarP(&filter.Limit, "limit", "n", 100, "at most this many, 1 to 1000")
	flags.StringVar(&filter.Cursor, "cursor", "", "go on where the page before ended")
	cmd.RunE = c.remote(func(c *call) error {
		if filter.Limit < 1 || filter.Limit > 1000 {
			return wrongUsage(cmd, "--limit must be from 1 to 1000")
		}
		page, err := c.broker.Links(c.ctx(), filter)
		if err != nil {
			return err
		}
		return c.show(page, func(t *table) {
			t.row("LINK", "SOURCE", "TARGET", "MATCH", "REWRITE KEY", "ENABLED")
			for _, l := range page.Links {
				t.row(l.ID, l.Source, l.Target, matchText(l.Match), rewriteText(l), l.Enabled)
			}
			more(t, page.NextCursor)
		})
	})
	return cmd
}

func linkShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show <link>",
		Short: "Show a link",
		RunE: c.remote(func(c *call) error {
			id, err := c.linkID()
			if err != nil {
				return err
			}
			link, err := c.broker.Link(c.ctx(), id)
			return c.link(link, err)
		}),
	}
}

func linkSwitchCommand(c *cli, on bool) *cobra.Command {
	cmd := &cobra.Command{Use: "enable <link>", Short: "Copy along a link again"}
	if !on {
		cmd.Use, cmd.Short = "disable <link>", "Copy nothing along a link"
	}
	cmd.RunE = c.remote(func(c *call) error {
		id, err := c.linkID()
		if err != nil {
			return err
		}
		link, err := c.broker.AlterLink(c.ctx(), id, api.LinkPatch{Enabled: &on})
		return c.link(link, err)
	})
	return cmd
}

func linkAlterCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alter <link>",
		Short: "Change the routing key that a link gives",
	}
	rewrite := cmd.Flags().String("rewrite-key", "", "routing key of the copies")
	keep := cmd.Flags().Bool("keep-key", false, "copies have the routing key of the message")
	cmd.RunE = c.remote(func(c *call) error {
		id, err := c.linkID()
		if err != nil {
			return err
		}
		if *keep == cmd.Flags().Changed("rewrite-key") {
			return wrongUsage(cmd, "give either --rewrite-key or --keep-key")
		}
		patch := api.LinkPatch{RewriteKey: json.RawMessage("null")}
		if !*keep {
			if patch.RewriteKey, err = api.Marshal(*rewrite); err != nil {
				return err
			}
		}
		link, err := c.broker.AlterLink(c.ctx(), id, patch)
		return c.link(link, err)
	})
	return cmd
}

func linkDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete <link>",
		Short: "Delete a link; what went along it stays where it is",
		RunE: c.remote(func(c *call) error {
			id, err := c.linkID()
			if err != nil {
				return err
			}
			if err := c.broker.DeleteLink(c.ctx(), id); err != nil {
				return err
			}
			return c.say(struct{}{}, "link %s is deleted", id)
		}),
	}
}

// linkID is the link that the first argument names.
func (c *call) linkID() (eventstore.LinkID, error) {
	id, err := eventstore.ParseLinkID(c.args[0])
	if err != nil {
		return 0, wrongUsage(c.cmd, "%q is not the id of a link: leat link list shows them", c.args[0])
	}
	return id, nil
}

// link shows a link, unless there was an error.
func (c *call) link(l api.Link, err error) error {
	if err != nil {
		return err
	}
	return c.show(l, func(t *table) {
		t.row("link", l.ID)
		t.row("source", l.Source)
		t.row("target", l.Target)
		t.row("match", matchText(l.Match))
		t.row("rewrite key", rewriteText(l))
		t.row("enabled", l.Enabled)
		t.row("declared at", l.DeclaredAt)
	})
}

// matchText is a match in one line.
func matchText(m api.Match) string {
	switch {
	case m.Pattern != nil:
		return m.Type + " " + plain(*m.Pattern)
	case m.Headers != nil:
		return strings.Join([]string{m.Mode, "of", m.Type, plain(string(m.Headers))}, " ")
	default:
		return m.Type
	}
}

func rewriteText(l api.Link) string {
	if l.RewriteKey == nil {
		return none
	}
	return plain(*l.RewriteKey)
}
