package replication

import "embed"

// SQL holds the functions of this package, for migrations.Run.
//
//go:embed *.sql
var SQL embed.FS
