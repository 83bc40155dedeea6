package projections

// Statements are all the statements of the package.
func Statements() []string {
	return []string{aliveSQL, gapsSQL, checkpointSQL, loseSQL, rebuildSQL, heldSQL, restoreStreamsSQL, setDurableSQL, verifySQL}
}
