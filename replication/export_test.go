package replication

// Statements are all the statements of the package.
func Statements() []string {
	return []string{announceSQL, contentSQL, findStartSQL, locateSQL, pageSQL, streamStatesSQL}
}
