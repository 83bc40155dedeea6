package main

import (
	"context"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"leat/api/client"
)

// cli is what the commands share: the flags that all of them have.
type cli struct {
	url    string // of the broker
	client string // what the log calls us
	output outputFormat
}

func (c *cli) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.url, "url", env("LEAT_URL", "http://127.0.0.1:8080"), "the broker to talk to (LEAT_URL)")
	flags.StringVar(&c.client, "client", env("LEAT_CLIENT", userName()), "what the log calls whoever runs this (LEAT_CLIENT)")
	c.output = tableOutput
	flags.VarP(&c.output, "output", "o", "table for people, json for programs: the values of the HTTP API")
}

// env returns an environment variable's value, or fallback where it is unset.
func env(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

// userName is user@host, or "" where the system does not know: then the broker
// takes the address that it sees.
func userName() string {
	who, err := user.Current()
	if err != nil {
		return ""
	}
	host, err := os.Hostname()
	if err != nil {
		return who.Username
	}
	return who.Username + "@" + host
}

// connect makes a client of the broker. It does not call it yet.
func (c *cli) connect() (*client.Client, error) {
	broker, err := client.New(c.url, client.Options{Client: c.client})
	if err != nil {
		return nil, &usageError{err: err}
	}
	return broker, nil
}

// call is one run of a command that talks to a broker.
type call struct {
	printer
	cmd    *cobra.Command
	args   []string
	broker *client.Client
}

func (c *call) ctx() context.Context { return c.cmd.Context() }

// remote makes of do what cobra runs.
func (c *cli) remote(do func(c *call) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		broker, err := c.connect()
		if err != nil {
			return err
		}
		defer broker.Close()
		return do(&call{printer: c.printer(cmd), cmd: cmd, args: args, broker: broker})
	}
}
