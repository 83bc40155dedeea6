package commands

import "embed"

// SQL holds the functions of the commands; the migrator creates them.
//
//go:embed *.sql
var SQL embed.FS
