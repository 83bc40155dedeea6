package projections

import "embed"

// SQL holds the functions of the queue views; the migrator creates them.
//
//go:embed *.sql
var SQL embed.FS
