package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"leat/projections"
)

// errDifferent makes `leat verify` end with exit code 3.
var errDifferent = errors.New("the queue views differ from the log: run leat rebuild")

func exitCode(err error) int {
	if errors.Is(err, errDifferent) {
		return 3
	}
	return 1
}

// database adds the flag that commands on the database itself share.
func database(cmd *cobra.Command) *string {
	return cmd.Flags().String("database-url", os.Getenv("LEAT_DATABASE_URL"), "the broker's database, direct (LEAT_DATABASE_URL)")
}

var errNoDatabase = errors.New("no database: give --database-url or LEAT_DATABASE_URL")

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database to this version's schema",
		Args:  cobra.NoArgs,
	}
	url := database(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *url == "" {
			return errNoDatabase
		}
		pool, err := open(cmd.Context(), *url, newLogger())
		if err != nil {
			return err
		}
		pool.Close()
		return nil
	}
	return cmd
}

func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the queue views with the log, message by message",
		Long:  "Compare the queue views with the log, message by message. Changes nothing.\nExit code 3: they differ.",
		Args:  cobra.NoArgs,
	}
	url := database(cmd)
	limit := cmd.Flags().Int("limit", 100, "show at most this many differences")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *url == "" {
			return errNoDatabase
		}
		pool, err := connect(cmd.Context(), *url)
		if err != nil {
			return err
		}
		defer pool.Close()
		done := spin("verifying")
		differences, err := projections.New(pool, newLogger()).Verify(cmd.Context(), false, *limit)
		done()
		if err != nil {
			return err
		}
		for _, difference := range differences {
			line, err := json.Marshal(map[string]any{
				"messageId": difference.MessageID, "log": difference.Log, "view": difference.View,
			})
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), string(line))
		}
		if len(differences) > 0 {
			return errDifferent
		}
		fmt.Fprintln(cmd.OutOrStdout(), "the queue views are what the log says")
		return nil
	}
	return cmd
}

func rebuildCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make the queue views anew from the log",
		Args:  cobra.NoArgs,
	}
	url := database(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *url == "" {
			return errNoDatabase
		}
		pool, err := connect(cmd.Context(), *url)
		if err != nil {
			return err
		}
		defer pool.Close()
		began := time.Now()
		done := spin("rebuilding")
		messages, err := projections.New(pool, newLogger()).Rebuild(cmd.Context())
		done()
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d messages rebuilt in %s\n", messages, time.Since(began).Round(time.Millisecond))
		return nil
	}
	return cmd
}

// spin shows on a terminal that work goes on; the fold is one statement, which
// does not say how far it is.
func spin(what string) (done func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func() {}
	}
	bar := progressbar.NewOptions(-1,
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionClearOnFinish())
	return func() { _ = bar.Finish() } // nothing more to show either way
}
