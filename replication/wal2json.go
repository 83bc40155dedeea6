package replication

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// wal2json decodes format version 2 of the extension of that name. It knows no row
// filter: the server sends the rows of queues too, and they are dropped here.
type wal2json struct{}

func (wal2json) options() []string {
	return []string{
		`"format-version" '2'`, `"include-transaction" 'false'`, `"include-types" 'false'`,
		`"actions" 'insert'`, `"add-tables" 'leat.*'`, `"add-msg-prefixes" '` + wakePrefix + `'`,
	}
}

// change is a message of format version 2.
type change struct {
	Action  string   `json:"action"`
	Schema  string   `json:"schema"`
	Table   string   `json:"table"`
	Columns []member `json:"columns"`
	Prefix  string   `json:"prefix"`
	Content string   `json:"content"`
}

type member struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// ofQueues is in each row that has no stream offset, and nowhere else: inside of
// strings quotes are escaped.
var ofQueues = []byte(`"name":"stream_offset","value":null`)

func (wal2json) decode(data []byte, to receiver) error {
	if bytes.Contains(data, ofQueues) {
		return nil
	}
	var c change
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("decode wal2json: %w", err)
	}
	switch {
	case c.Action == "M" && c.Prefix == wakePrefix:
		if channels := parseChannels(c.Content); len(channels) > 0 {
			to.Wake(channels...)
		}
	case c.Action == "I" && c.Schema == "leat" && (c.Table == "events" || strings.HasPrefix(c.Table, "events_")):
		values, err := c.values()
		if err != nil {
			return fmt.Errorf("decode row of wal2json: %w", err)
		}
		if err := insertRow(values, to); err != nil {
			return fmt.Errorf("decode row of wal2json: %w", err)
		}
	}
	return nil
}

// values are the columns in PostgreSQL's text format. wal2json leaves out what
// stands before the digits of a bytea.
func (c *change) values() (*[columns]value, error) {
	var values [columns]value
	for _, m := range c.Columns {
		col := columnNames[m.Name]
		if col == columnOther || len(m.Value) == 0 || string(m.Value) == "null" {
			continue
		}
		data := []byte(m.Value)
		if data[0] == '"' {
			var text string
			if err := json.Unmarshal(m.Value, &text); err != nil {
				return nil, err
			}
			data = []byte(text)
		}
		if col != columnPayload {
			values[col] = value{data: data}
			continue
		}
		payload, err := decodeHex(data)
		if err != nil {
			return nil, err
		}
		values[col] = value{data: payload, binary: true}
	}
	return &values, nil
}

func decodeHex(digits []byte) ([]byte, error) {
	decoded := make([]byte, hex.DecodedLen(len(digits)))
	_, err := hex.Decode(decoded, digits)
	return decoded, err
}
