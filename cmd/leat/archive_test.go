package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/cmd/leat/internal/archive"
	"leat/migrations/dbtest"
)

// archived is a broker with a log in an archive of two files.
func archived(t *testing.T) (broker *process, dir string, m archive.Manifest) {
	t.Helper()
	_, database := dbtest.NewURL(t)
	broker = serveProcess(t, "--database-url", database)
	dir = filepath.Join(t.TempDir(), "archive")
	broker.leat("channel", "declare", "orders")
	for n := range 2 {
		broker.leat("publish", "orders", `{"order": 471`+string('1'+rune(n))+`}`, "--key", "k")
		require.NotContains(t, broker.leat("archive", "--to", dir), "already")
	}
	m = value[archive.Manifest](broker, "archive", "--to", dir)
	require.Len(t, m.Files, 2)
	require.Contains(t, broker.leat("archive", "--to", dir), "already")
	return broker, dir, m
}

// What an archive gives is what the log gives, by the same filters.
func TestArchive(t *testing.T) {
	t.Parallel()
	broker, dir, m := archived(t)
	last := m.Files[len(m.Files)-1].To.String()
	require.Equal(t, broker.leat("replay", "--to", last), broker.leat("replay", "--archive", dir))
	for _, filter := range []string{
		"--channel orders", "--kind message.published", "--key k", "--from 2 --to 3", "--actor tester", "--since 1h", "--until 1h", "-n 2",
		"--message 2", "-o table --kind channel.declared",
	} {
		args := strings.Fields("replay " + filter)
		if !strings.Contains(filter, "--to") {
			args = append(args, "--to", last)
		}
		require.Equal(t, broker.leat(args...), broker.leat(append(args, "--archive", dir)...), filter)
	}
	require.Equal(t, 2, strings.Count(broker.leat("replay", "--kind", "log.archived"), "sha256"))
	require.Contains(t, broker.leat("verify", "--chain"), "the log is what was sealed")
}

// A run that broke off leaves a file that no manifest names, or one that the log does
// not know of; the next one goes on.
func TestArchiveGoesOn(t *testing.T) {
	t.Parallel()
	broker, dir, m := archived(t)
	last := m.Files[len(m.Files)-1].To.String()
	whole := broker.leat("replay", "--archive", dir)
	kept := m
	kept.Files = kept.Files[:1]
	text, err := json.Marshal(kept)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, m.Files[1].Name), []byte("half"), 0o600))
	broker.leat("archive", "--to", dir)
	require.Equal(t, whole, broker.leat("replay", "--archive", dir, "--to", last))
}

// G8: what is cut, changed or lost is told by its name.
func TestArchiveDamaged(t *testing.T) {
	t.Parallel()
	broker, dir, m := archived(t)
	path := filepath.Join(dir, m.Files[0].Name)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	bad := append([]byte{}, good...)
	bad[len(bad)/2] ^= 1
	for says, data := range map[string][]byte{
		"it was cut": good[:len(good)-3], "is damaged behind position": bad, "was cut, or changed": {},
	} {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		got := broker.exits(exitFailed, "", "replay", "--archive", dir)
		require.Contains(t, got.errs, says)
		require.Contains(t, got.errs, m.Files[0].Name)
		require.Empty(t, got.out)
	}
	require.NoError(t, os.Remove(path))
	require.Contains(t, broker.exits(exitFailed, "", "archive", "--to", dir).errs, m.Files[0].Name)
}

// The archive of one log does not go on with another.
func TestArchiveOfAnotherLog(t *testing.T) {
	t.Parallel()
	_, dir, _ := archived(t)
	other, _, _ := archived(t)
	require.Contains(t, other.exits(exitFailed, "", "archive", "--to", dir).errs, "another one")
}
