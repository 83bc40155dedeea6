// Package archive writes ranges of the log to files, and reads them back.
//
// # Guarantees
//
//   - What is in an archive is what was sealed: each file holds whole seals, which are
//     verified before, and as many events as they have (TestArchive, in cmd/leat). The log.archived event
//     has the file's digest, and the seals to come cover that event: so the chain of
//     the log proves what the file has to be, also when the range has left the log.
//   - An archive that breaks off is whole: a file has its name when it is on disk, and
//     the manifest names it after that. The next run goes on behind the last one
//     (TestArchiveGoesOn).
//   - An archive of another log, or of one that has changed since, is refused
//     (TestArchiveOfAnotherLog).
//   - A file that was cut, changed or lost is refused before anything of it is read, by
//     its name and the place (TestArchiveDamaged).
//
// # How it works
//
//	verify a page of the chain ─▶ copy its events ─▶ file.tmp ─▶ file ─▶ manifest.json ─▶ log.archived
//
// A file is NDJSON as GET /v1/events has it, compressed with zstd; the manifest says
// the range, the numbers and the digests of each.
//
// Reading order: manifest.go, write.go, read.go.
package archive
