package replication

// Statements are all the statements of the package.
func Statements() []string {
	return append(pointStatements(), announceSQL, contentSQL, findStartSQL, locateSQL, pageSQL, streamStatesSQL)
}
