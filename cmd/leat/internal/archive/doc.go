// Package archive writes ranges of the log to files, and reads them back.
//
// # Guarantees
//
//   - What is in an archive is what was sealed: each file holds whole seals, which are
//     verified before, and as many events as they have (TestArchive, in cmd/leat). The log.archived event
//     has the file's digest, and the seals to come cover that event: so the chain of
//     the log proves what the file has to be, also when the range has left the log.
//   - What is read is what GET /v1/events gives, byte for byte, from files of either
//     format (TestG8ArchiveGivesBackEveryByte, TestG8ArchiveOfAnything; of a real log
//     TestG8ArchiveOfEveryKind, in cmd/leat). What a table has no column for is an
//     error (TestParquetOfWhatItDoesNotKnow).
//   - An archive that breaks off is whole: a file has its name when it is on disk, and
//     the manifest names it after that. The next run removes what no manifest came to
//     name, and goes on behind the last file (TestArchiveGoesOn, and with real kills
//     TestG2ArchiveKilled, in cmd/leat). There is one at a time (TestArchiveHasOneWriter).
//   - An archive of another log, or of one that has changed since, is refused
//     (TestArchiveOfAnotherLog).
//   - A file that was cut, changed or lost is refused before anything of it is read, by
//     its name (TestG8ArchiveDamagedAnywhere, and through the command line
//     TestArchiveDamaged). Of lines it is said how far they are good; of a table not:
//     what is known to be damaged is not given to its library. That a file has the
//     events that the manifest says holds also where somebody made their digests match
//     (TestG8ArchiveCutWithItsManifest).
//
// # How it works
//
//	verify a page of the chain ─▶ copy its events ─▶ file.tmp ─▶ file ─▶ manifest.json ─▶ log.archived
//
// A file is NDJSON as GET /v1/events has it, compressed with zstd, or a Parquet table
// with a column for each member of an event; the manifest says the format, the range,
// the numbers and the digests of each. One archive may have files of both: a run writes
// one format, which is that of the file before where nobody says another.
//
// Both are made of the lines of the broker. A row has to give back the line that it was
// made of; and as others wrote what packs the rows, a table is read again, all of it,
// before it has its name: the log may be dropped because it is archived. In memory
// are a row group, of some tens of megabytes, and an event, whatever the archive.
//
// Reading order: manifest.go, write.go, read.go, lock.go, format.go, ndjson.go,
// parquet.go, parquet_file.go, parquet_footer.go.
package archive
