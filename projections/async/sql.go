package async

import "embed"

// SQL holds the functions that keep the state of projections; the migrator creates
// them.
//
//go:embed *.sql
var SQL embed.FS
