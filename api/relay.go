package api

import "time"

// RelaySpec declares a relay. What is left out has its default.
type RelaySpec struct {
	Topic   string   `json:"topic,omitempty" maxLength:"240" doc:"of Watermill's SQL publisher, whose table is watermill_<topic>"`
	Table   string   `json:"table,omitempty" maxLength:"255" doc:"instead of topic: the name of the table"`
	Schema  string   `json:"schema,omitempty" maxLength:"255" doc:"of the table; default where the broker's role finds it, or public"`
	Channel string   `json:"channel" doc:"that the rows are published to; it must exist"`
	Key     string   `json:"key,omitempty" maxLength:"255" doc:"metadata whose value is the routing key; default none"`
	Delete  bool     `json:"delete,omitempty" doc:"delete the rows that were moved; no long transaction holds such a relay back"`
	Every   Duration `json:"every,omitempty" doc:"between two looks at the table; default 1s"`
	From    string   `json:"from,omitempty" enum:"earliest,latest" doc:"latest leaves out what is in the table already; default earliest"`
}

// Relay moves the rows of a table that Watermill's SQL publisher writes into a
// channel, each exactly once.
type Relay struct {
	Relay      string     `json:"relay"`
	Table      string     `json:"table" doc:"with its schema, quoted where it has to be"`
	Channel    string     `json:"channel"`
	Key        string     `json:"key,omitempty"`
	Delete     bool       `json:"delete"`
	Every      Duration   `json:"every"`
	Moved      int64      `json:"moved" doc:"rows, since it was declared"`
	MovedAt    *time.Time `json:"movedAt,omitempty" doc:"the last time"`
	Lag        int64      `json:"lag" doc:"rows that wait; 10000 stands for more"`
	RestoredAt *time.Time `json:"restoredAt,omitempty" doc:"when it found the table in another cluster, or begun anew, and took its place in it anew"`
	Failure    string     `json:"failure,omitempty" doc:"why it does not go on; it tries again"`
	FailedAt   *time.Time `json:"failedAt,omitempty"`
	DeclaredAt time.Time  `json:"declaredAt"`
}

// RelayList is all relays, by name.
type RelayList struct {
	Relays []Relay `json:"relays" nullable:"false"`
}

// RelaySkip names the row that a relay is to leave out.
type RelaySkip struct {
	Offset int64 `json:"offset" doc:"of the next row"`
}
