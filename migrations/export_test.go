package migrations

// RunFiles is Run with other numbered migrations than those of the binary.
var RunFiles = run
