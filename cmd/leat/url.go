package main

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func urlCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "url",
		Short: "Print the URL of the private PostgreSQL of a running broker, password included",
		Args:  cobra.NoArgs,
	}
	data := cmd.Flags().String("data", env("LEAT_DATA", "data"), "folder of the private PostgreSQL (LEAT_DATA)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := privateURL(*data)
		if err != nil {
			return fmt.Errorf("find the private PostgreSQL in %s (is leat serve running?): %w", *data, err)
		}
		fmt.Fprintln(cmd.OutOrStdout(), found)
		return nil
	}
	return cmd
}

// privateURL reads what only the owner of the folder can: the password, and the
// port from PostgreSQL's postmaster.pid, whose fourth line it is.
func privateURL(data string) (string, error) {
	password, err := os.ReadFile(filepath.Join(data, "password"))
	if err != nil {
		return "", err
	}
	file, err := os.Open(filepath.Join(data, "pgdata", "postmaster.pid"))
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewScanner(file)
	for range 4 {
		if !lines.Scan() {
			return "", fmt.Errorf("read %s: cut short", file.Name())
		}
	}
	address := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword("leat", strings.TrimSpace(string(password))),
		Host:   "127.0.0.1:" + strings.TrimSpace(lines.Text()),
		Path:   "/leat",
	}
	return address.String(), nil
}
