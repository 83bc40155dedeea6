package eventstore

// Statements are all the statements of the package.
func Statements() []string {
	return []string{
		makePartitionsSQL, noticeRestoreSQL, trimGapsSQL, settledPositionSQL,
		readRangeSQL, rangeSettingsSQL, trySealSQL, unsealedSQL, appendSealSQL, sealsSQL, keepLogSQL, lastSealSQL,
		chainStartSQL, logBeginSQL, logPartitionsSQL, logPinsSQL, renewCheckpointSQL, logBaseSQL, dropLogSQL, sealAtSQL, noteArchiveSQL,
	}
}

// CanonicalColumns is canonicalColumns.
const CanonicalColumns = canonicalColumns
