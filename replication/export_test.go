package replication

// Statements are all the statements of the package.
func Statements() []string {
	return append(pointStatements(), announceSQL, publicationSQL, holdsUpSQL, renewSQL, leaveSQL, contentSQL, findStartSQL, locateSQL, pageSQL, streamStatesSQL)
}

// For looking at their plans.
const (
	ContentSQL = contentSQL
	LocateSQL  = locateSQL
	PageSQL    = pageSQL
)
