package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"leat/migrations"
)

// database adds the flag that commands on the database itself share.
func database(cmd *cobra.Command, otherwise string) *string {
	return cmd.Flags().String("database-url", os.Getenv("LEAT_DATABASE_URL"),
		"the broker's database, direct (LEAT_DATABASE_URL)"+otherwise)
}

func migrateCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database to this version's schema",
		Long:  "Bring a database to this version's schema. leat serve does the same when it starts.",
	}
	url := database(cmd, "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *url == "" {
			return &usageError{cmd, errors.New("no database: give --database-url or LEAT_DATABASE_URL")}
		}
		pool, err := connect(cmd.Context(), *url)
		if err != nil {
			return err
		}
		defer pool.Close()
		result, err := migrations.Run(cmd.Context(), pool, functions()...)
		if err != nil {
			return fmt.Errorf("migrate database: %w", err)
		}
		answer := struct {
			From      int64 `json:"from"`
			To        int64 `json:"to"`
			Functions bool  `json:"functions"`
		}{result.From, result.To, result.Functions}
		if result.From == result.To && !result.Functions {
			return c.printer(cmd).say(answer, "the schema is at version %d already", result.To)
		}
		return c.printer(cmd).say(answer, "the schema went from version %d to %d", result.From, result.To)
	}
	return cmd
}
