package main

import (
	"fmt"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"leat/api"
	"leat/eventstore"
)

func republishCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "republish",
		Short: "Publish again what a channel held in the past",
		Long: "Publish again what a channel held in the past: as new messages of any channel, with the payloads\n" +
			"and origins of the old ones, in the old order. What breaks off can be resumed, and then\n" +
			"neither misses nor repeats anything.",
	}
	cmd.AddCommand(republishStartCommand(c), republishResumeCommand(c), republishListCommand(c))
	return cmd
}

// republishFlags choose a range of the past.
type republishFlags struct {
	from, to             int64
	fromOffset, toOffset int64
	since, until         moment
	key                  string
	rate                 int
	dryRun               bool
}

func republishStartCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start <source> <target>",
		Short: "Publish a range of what source held into target",
		Long: "Publish a range of what source held into target: all of it, unless flags narrow it, up to now.\n" +
			"The source may have been deleted; the target may be the same.",
		Example: `  leat republish start orders orders-check --since 24h --until 12h --dry-run
  leat republish start orders orders-check --since 24h --until 12h --rate 500
  leat republish start prices prices-copy --from-offset 1000 --key 'eu.#'`,
	}
	f := &republishFlags{}
	flags := cmd.Flags()
	flags.Int64Var(&f.from, "from", 0, "first position of the log")
	flags.Int64Var(&f.to, "to", 0, "last position")
	flags.Int64Var(&f.fromOffset, "from-offset", 0, "of a stream: first offset")
	flags.Int64Var(&f.toOffset, "to-offset", 0, "of a stream: last offset")
	flags.Var(&f.since, "since", "not older than this")
	flags.Var(&f.until, "until", "older than this")
	flags.StringVarP(&f.key, "key", "k", "", "only these routing keys: words with dots between, * is one word, # any number of them")
	flags.IntVar(&f.rate, "rate", 0, "messages per second (default: as fast as it goes)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "count, and write nothing")
	cmd.RunE = c.remote(func(c *call) error {
		request, err := f.request(cmd, c.args[0], c.args[1])
		if err != nil {
			return err
		}
		return c.republish(func(progress func(api.Replay)) (api.Replay, error) {
			return c.broker.Republish(c.ctx(), request, progress)
		})
	})
	return cmd
}

func (f *republishFlags) request(cmd *cobra.Command, source, target string) (api.RepublishRequest, error) {
	for name, number := range map[string]int64{"from": f.from, "to": f.to, "rate": int64(f.rate)} {
		if cmd.Flags().Changed(name) && number < 1 {
			return api.RepublishRequest{}, wrongUsage(cmd, "--%s must be at least 1", name)
		}
	}
	if f.fromOffset < 0 || f.toOffset < 0 {
		return api.RepublishRequest{}, wrongUsage(cmd, "--from-offset and --to-offset must not be negative")
	}
	return api.RepublishRequest{
		Source: source, Target: target, From: eventstore.Position(f.from), To: eventstore.Position(f.to),
		FromOffset: (*eventstore.Offset)(given(cmd, "from-offset", &f.fromOffset)),
		ToOffset:   (*eventstore.Offset)(given(cmd, "to-offset", &f.toOffset)),
		Since:      orNil(f.since.Time), Until: orNil(f.until.Time), Key: given(cmd, "key", &f.key), Rate: f.rate, DryRun: f.dryRun,
	}, nil
}

func republishResumeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "resume <replay-id>",
		Short: "Go on with what broke off; who runs it elsewhere is stopped",
		RunE: c.remote(func(c *call) error {
			id, err := eventstore.ParsePosition(c.args[0])
			if err != nil {
				return wrongUsage(c.cmd, "%w", err)
			}
			return c.republish(func(progress func(api.Replay)) (api.Replay, error) {
				return c.broker.ResumeReplay(c.ctx(), id, progress)
			})
		}),
	}
}

// republish runs a replay and shows how far it is.
func (c *call) republish(run func(progress func(api.Replay)) (api.Replay, error)) error {
	progress, done := count("republish", progressbar.OptionShowIts())
	var last api.Replay
	replay, err := run(func(r api.Replay) {
		progress(int(r.Messages - last.Messages))
		last = r
	})
	done()
	switch {
	case err != nil && last.ID != 0:
		return fmt.Errorf("%d messages done (go on with leat republish resume %d): %w", last.Messages, last.ID, err)
	case err != nil:
		return err
	}
	err = c.show(replay, func(t *table) { t.row(replayText(replay)) })
	if err == nil && replay.ID != 0 && replay.Gone > 0 {
		return errSomeStay
	}
	return err
}

// replayText says what a replay did, or would do.
func replayText(r api.Replay) string {
	text := fmt.Sprintf("%d messages of %s published again into %s (replay %d)", r.Messages, plain(r.Source), plain(r.Target), r.ID)
	if r.ID == 0 {
		text = fmt.Sprintf("%d messages, %d bytes, would be published again into %s", r.Messages, r.Bytes, plain(r.Target))
	}
	if r.Copies != r.Messages {
		text += fmt.Sprintf(", %d copies", r.Copies)
	}
	for _, part := range []struct {
		n    int64
		text string
	}{
		{r.Dead, "to the dead letters, behind open circuits"},
		{r.Unroutable, "left out: no link leads them anywhere"},
		{r.Gone, "left out: their payload has left the log"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.text)
		}
	}
	return text
}

func republishListCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List what was published again, or is, the last one first"}
	flags := cmd.Flags()
	limit := flags.IntP("limit", "n", 100, "at most this many, 1 to 1000")
	cursor := flags.String("cursor", "", "go on where the page before ended")
	cmd.RunE = c.remote(func(c *call) error {
		if *limit < 1 || *limit > 1000 {
			return wrongUsage(cmd, "--limit must be from 1 to 1000")
		}
		page, err := c.broker.Replays(c.ctx(), *cursor, *limit)
		if err != nil {
			return err
		}
		return c.show(page, func(t *table) {
			t.row("REPLAY", "SOURCE", "TARGET", "STARTED", "CHANGED", "MESSAGES", "DONE")
			for _, r := range page.Replays {
				t.row(r.ID, plain(r.Source), plain(r.Target), r.StartedAt, r.ChangedAt, r.Messages, fmt.Sprintf("%.0f %%", 100*r.Done))
			}
			more(t, page.NextCursor)
		})
	})
	return cmd
}
