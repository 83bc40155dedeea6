package main

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
	"leat/cmd/leat/internal/archive"
	"leat/eventstore"
)

func archiveCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Write the log to compressed files, as far as they do not hold it yet",
		Long: "Write the log to compressed files, as far as they do not hold it yet, and a manifest.json with the digests\n" +
			"of the files and of the log's chain. It seals the log first. What is archived is noted in the log (log.archived).\n" +
			"leat replay --archive reads it back, whatever the formats of its files:\n\n" +
			"  ndjson   the lines of leat replay, in zstd\n" +
			"  parquet  a table for DuckDB, Spark and the like, with a column for each member of an event",
		Example: `  leat archive --to /backup/leat
  leat archive --to /backup/leat-tables --format parquet
  leat replay --archive /backup/leat --channel orders --since 2026-01-01T00:00:00Z`,
	}
	to := cmd.Flags().String("to", "", "the folder of the archive")
	name := cmd.Flags().String("format", "", "of the files that it writes: ndjson or parquet (default: as the archive's last file; ndjson in a new one)")
	cmd.RunE = c.remote(func(c *call) error {
		if *to == "" {
			return wrongUsage(cmd, "say where with --to")
		}
		format, err := archiveFormat(cmd, *name)
		if err != nil {
			return err
		}
		var at, end atomic.Int64
		done := follow(c.ctx(), "archiving", func(context.Context) (int64, int64, error) { return at.Load(), end.Load(), nil })
		manifest, added, err := archive.Write(c.ctx(), c.broker, *to, format, func(to, settled eventstore.Position) {
			at.Store(int64(to))
			end.Store(int64(settled))
		})
		done()
		if err != nil {
			return err
		}
		fresh := manifest.Files[len(manifest.Files)-added:]
		return c.show(manifest, func(t *table) {
			if added == 0 {
				t.row("the archive holds all of the log already")
				return
			}
			t.row("FILE", "EVENTS", "BYTES", "COMPRESSED")
			for _, f := range fresh {
				t.row(f.Name, f.Events, f.Bytes, f.Size)
			}
		})
	})
	return cmd
}

// archiveFormat is "" where the archive is to go on as it is.
func archiveFormat(cmd *cobra.Command, name string) (archive.Format, error) {
	if !cmd.Flags().Changed("format") {
		return "", nil
	}
	format, err := archive.ParseFormat(name)
	if err != nil {
		return "", wrongUsage(cmd, "--format must be %s or %s", archive.NDJSON, archive.Parquet)
	}
	return format, nil
}

// replayArchive is replay from an archive.
func replayArchive(c *call, dir string, f client.EventsFilter, lines bool) error {
	left := f.Limit
	return archive.Read(dir, f.From, f.To, func(e *api.Event, line []byte) (more bool, err error) {
		if !chooses(&f, e) {
			return true, nil
		}
		if lines {
			_, err = c.out.Write(append(slices.Clone(line), '\n'))
		} else {
			err = c.printEvent(e)
		}
		left--
		return left != 0, err
	})
}

// chooses is what the broker says of an event, but for its position.
func chooses(f *client.EventsFilter, e *api.Event) bool {
	return (f.Since.IsZero() || !e.At.Before(f.Since)) &&
		(f.Until.IsZero() || e.At.Before(f.Until)) &&
		(f.Channel == "" || e.Channel == f.Channel) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, eventstore.Kind(e.Kind))) &&
		(f.Actor == "" || e.Actor == f.Actor) &&
		(f.RoutingKey == nil || (e.RoutingKey != nil && *e.RoutingKey == *f.RoutingKey)) &&
		(f.MessageID == 0 || names(e, f.MessageID))
}

func names(e *api.Event, id eventstore.MessageID) bool {
	return slices.Contains(e.Messages, id) || slices.ContainsFunc(e.Ranges, func(r [2]eventstore.MessageID) bool {
		return r[0] <= id && id <= r[1]
	})
}
