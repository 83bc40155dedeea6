package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"leat/api"
)

// publishFlags are the fields of a message, and where its payload comes from.
type publishFlags struct {
	key         string
	header      []string
	headers     string
	priority    int
	delay, ttl  time.Duration
	deliverAt   instant
	expiresAt   instant
	dedupID     string
	contentType string
	file        string
	ndjson      bool
	partial     bool
}

const publishHelp = `Publish a message whose payload is the argument, the file of --file, or else
what stdin has. Bytes go in as they are.

The content type is application/json where the payload is JSON, text/plain where
it is other text, and application/octet-stream otherwise, unless --content-type
says what it is.

With --ndjson every line is a message, as in {"routingKey":"k","payload":{"n":1}}
with the fields of the HTTP API. They are published in batches of 1000 lines: each
batch is stored as a whole or not at all, or with --partial without its bad lines.`

func publishCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish <channel> [payload|-]",
		Short: "Publish a message, or many",
		Long:  publishHelp,
		Example: `  leat publish orders '{"order":4711}' --key customer-1
  leat publish images --file photo.jpg --content-type image/jpeg
  generate | leat publish orders --ndjson`,
	}
	f := &publishFlags{}
	flags := cmd.Flags()
	flags.StringVarP(&f.key, "key", "k", "", "routing key, up to 255 bytes")
	flags.StringArrayVarP(&f.header, "header", "H", nil, "header as name=value; once for each")
	flags.StringVar(&f.headers, "headers", "", "all headers as a JSON object")
	flags.IntVar(&f.priority, "priority", 0, "0 to 9, higher first; a FIFO queue takes 0 only")
	flags.DurationVar(&f.delay, "delay", 0, "not before this long from now")
	flags.Var(&f.deliverAt, "deliver-at", "not before")
	flags.DurationVar(&f.ttl, "ttl", 0, "never delivered later than this long from now; 0 is no end")
	flags.Var(&f.expiresAt, "expires-at", "never delivered from then on")
	flags.StringVar(&f.dedupID, "dedup-id", "", "unique in the channel within its dedup window")
	flags.StringVar(&f.contentType, "content-type", "", "of the payload")
	flags.StringVarP(&f.file, "file", "f", "", "file with the payload, or with the lines")
	flags.BoolVar(&f.ndjson, "ndjson", false, "many messages, a JSON object a line")
	flags.BoolVar(&f.partial, "partial", false, "with --ndjson: store the good lines even if others are refused")
	cmd.RunE = c.remote(func(c *call) error {
		if err := f.check(c); err != nil {
			return err
		}
		in, err := f.open(c)
		if err != nil {
			return err
		}
		defer in.Close()
		if f.ndjson {
			return publishLines(c, in, f.partial)
		}
		return f.publish(c, in)
	})
	return cmd
}

// notWithLines are the flags that say what with --ndjson the lines say.
var notWithLines = []string{
	"key", "header", "headers", "priority", "delay", "deliver-at", "ttl", "expires-at", "dedup-id", "content-type",
}

func (f *publishFlags) check(c *call) error {
	changed := c.cmd.Flags().Changed
	if len(c.args) > 1 && (f.file != "" || f.ndjson && c.args[1] != "-") {
		return wrongUsage(c.cmd, "the payload is given twice: as an argument and with --file or --ndjson")
	}
	if f.partial && !f.ndjson {
		return wrongUsage(c.cmd, "--partial goes with --ndjson")
	}
	if f.headers != "" && len(f.header) > 0 {
		return wrongUsage(c.cmd, "give --header or --headers, not both")
	}
	for _, name := range notWithLines {
		if f.ndjson && changed(name) {
			return wrongUsage(c.cmd, "--%s does not go with --ndjson: write it into the lines", name)
		}
	}
	return nil
}

// open finds where the payload, or the lines, come from.
func (f *publishFlags) open(c *call) (io.ReadCloser, error) {
	switch {
	case f.file != "" && f.file != "-":
		file, err := os.Open(f.file)
		if err != nil {
			return nil, fmt.Errorf("read payload: %w", err)
		}
		return file, nil
	case len(c.args) > 1 && c.args[1] != "-":
		return io.NopCloser(strings.NewReader(c.args[1])), nil
	default:
		return io.NopCloser(c.cmd.InOrStdin()), nil
	}
}

func (f *publishFlags) publish(c *call, in io.Reader) error {
	payload, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read payload: %w", err)
	}
	message, err := f.message(payload)
	if err != nil {
		return &usageError{c.cmd, err}
	}
	result, err := c.broker.Publish(c.ctx(), c.args[0], api.PublishRequest{Messages: []api.Message{message}}, false)
	if err != nil {
		return err
	}
	return c.show(result, func(t *table) {
		for _, m := range result.Messages {
			switch {
			case m.Duplicate:
				t.row(fmt.Sprintf("message %d was published before, with the same dedup id and content", m.MessageID))
			case m.DeadLettered:
				t.row(fmt.Sprintf("published message %d into the dead letters: the circuit of its routing key is not closed", m.MessageID))
			case m.Offset != nil:
				t.row(fmt.Sprintf("published message %d at offset %d", m.MessageID, *m.Offset))
			default:
				t.row(fmt.Sprintf("published message %d", m.MessageID))
			}
			if len(m.RoutedTo) > 0 {
				t.row("copied to " + strings.Join(m.RoutedTo, ", "))
			}
			if len(m.DeadLetteredIn) > 0 {
				t.row("into the dead letters of " + strings.Join(m.DeadLetteredIn, ", "))
			}
		}
	})
}

func (f *publishFlags) message(payload []byte) (api.Message, error) {
	headers, err := f.headersJSON()
	if err != nil {
		return api.Message{}, err
	}
	contentType := f.contentType
	if contentType == "" {
		contentType = typeOf(payload)
	}
	m := api.Message{
		RoutingKey:  f.key,
		ContentType: contentType,
		Headers:     headers,
		Priority:    f.priority,
		Delay:       api.Duration(f.delay),
		DeliverAt:   f.deliverAt.optional(),
		TTL:         api.Duration(f.ttl),
		ExpiresAt:   f.expiresAt.optional(),
		DedupID:     f.dedupID,
	}
	content := api.NewContent(payload, contentType, nil)
	if m.Payload = content.Payload; content.PayloadBase64 != nil {
		m.PayloadBase64 = *content.PayloadBase64
	}
	return m, nil
}

func typeOf(payload []byte) string {
	switch {
	case json.Valid(payload):
		return api.ContentJSON
	case utf8.Valid(payload) && !bytes.ContainsRune(payload, 0):
		return "text/plain; charset=utf-8"
	default:
		return "application/octet-stream"
	}
}

func (f *publishFlags) headersJSON() (json.RawMessage, error) {
	if f.headers != "" {
		if !json.Valid([]byte(f.headers)) {
			return nil, errors.New("--headers is not JSON")
		}
		return json.RawMessage(f.headers), nil
	}
	if len(f.header) == 0 {
		return nil, nil
	}
	headers := map[string]string{}
	for _, header := range f.header {
		name, value, ok := strings.Cut(header, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q is not of the form name=value", header)
		}
		if _, twice := headers[name]; twice {
			return nil, fmt.Errorf("--header %s is given twice", name)
		}
		headers[name] = value
	}
	return json.Marshal(headers)
}
