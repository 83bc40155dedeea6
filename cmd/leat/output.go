package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"leat/api"
)

// outputFormat is the value of the flag -o.
type outputFormat string

const (
	tableOutput outputFormat = "table"
	jsonOutput  outputFormat = "json"
)

// String, Set and Type make it a flag.
func (f *outputFormat) String() string { return string(*f) }

// Set takes one of the two formats.
func (f *outputFormat) Set(text string) error {
	switch format := outputFormat(text); format {
	case tableOutput, jsonOutput:
		*f = format
		return nil
	}
	return fmt.Errorf("must be %s or %s", tableOutput, jsonOutput)
}

// Type is how --help names the value.
func (f *outputFormat) Type() string { return "table|json" }

// printer writes the answers of a command.
type printer struct {
	out  io.Writer
	json bool
}

func (c *cli) printer(cmd *cobra.Command) printer {
	return printer{out: cmd.OutOrStdout(), json: c.output == jsonOutput}
}

// show writes a value of the HTTP API, or what people like to see of it.
func (p printer) show(value any, people func(t *table)) error {
	var text bytes.Buffer
	if p.json {
		line, err := api.Marshal(value)
		if err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		text.Write(append(line, '\n'))
	} else {
		t := &table{tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)}
		people(t)
		if err := t.w.Flush(); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
	if _, err := p.out.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// say is show for answers that are one sentence.
func (p printer) say(value any, format string, args ...any) error {
	return p.show(value, func(t *table) { t.row(fmt.Sprintf(format, args...)) })
}

// table aligns rows of cells.
type table struct{ w *tabwriter.Writer }

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = cellText(cell)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(texts, "\t"), "\t"))
}

// none stands in a cell for no value.
const none = "-"

func cellText(cell any) string {
	switch v := cell.(type) {
	case string:
		return v
	case time.Time:
		return v.Local().Format("2006-01-02T15:04:05.000Z07:00")
	case *time.Time:
		if v == nil {
			return none
		}
		return cellText(*v)
	default:
		return fmt.Sprint(v)
	}
}

// plain is text of somebody else on its way to a terminal: quoted, unless it is
// there and every character prints.
func plain(text string) string {
	if text != "" && utf8.ValidString(text) && strings.IndexFunc(text, notPrintable) < 0 {
		return text
	}
	return strconv.Quote(text)
}

func notPrintable(r rune) bool { return !unicode.IsPrint(r) }

// orNone is plain, but for text that may be missing.
func orNone(text string) string {
	if text == "" {
		return none
	}
	return plain(text)
}

// previewRunes is how much of a payload a table shows.
const previewRunes = 60

// preview is the beginning of a payload.
func preview(c api.Content) string {
	payload := c.Bytes()
	if payload == nil {
		return none
	}
	if !utf8.Valid(payload) {
		return fmt.Sprintf("(%d bytes)", len(payload))
	}
	runes := []rune(string(payload[:min(len(payload), utf8.UTFMax*previewRunes)]))
	if len(runes) <= previewRunes && len(payload) <= utf8.UTFMax*previewRunes {
		return plain(string(runes))
	}
	return plain(string(runes[:min(len(runes), previewRunes)])) + "…"
}
