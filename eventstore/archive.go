package eventstore

import (
	"context"
	"encoding/json"
	"fmt"
)

// ArchivedRange is what a log.archived event says: the events from From to To, a
// whole number of seals, are in a file of an archive.
type ArchivedRange struct {
	From   Position `json:"from"`
	To     Position `json:"to"`
	Events int64    `json:"events"`
	File   string   `json:"file"`
	SHA256 Digest   `json:"sha256"` // of the file
	Digest Digest   `json:"digest"` // of the chain at To
}

const noteArchiveSQL = `-- eventstore.noteArchive
select leat.note_archive($1, $2)`

// NoteArchive appends a log.archived event and answers its position. Retention then
// takes the range as archived, and the seals to come prove what the file has to be.
// What was noted before is not noted again. The range has to end where a seal does,
// whose digest is the range's.
func (s *Store) NoteArchive(ctx context.Context, actor string, r ArchivedRange) (position Position, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, noteArchiveSQL, actor, string(data)).Scan(&position)
	if err != nil {
		return 0, fmt.Errorf("note an archive of the log: %w", FromPg(err))
	}
	return position, nil
}
