package dbtest_test

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
)

func TestMain(m *testing.M) {
	functions := fstest.MapFS{"answer.sql": {Data: []byte(
		`create function leat.answer() returns int language sql as 'select 42'`)}}
	os.Exit(dbtest.Main(m, functions))
}

func TestNew(t *testing.T) {
	t.Parallel()
	for range 3 {
		t.Run("own", func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			_, err := pool.Exec(t.Context(), "create table leat.mine (id int)")
			require.NoError(t, err)
			var answer int
			require.NoError(t, pool.QueryRow(t.Context(), "select leat.answer()").Scan(&answer))
			require.Equal(t, 42, answer)
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		dbtest.New(b)
	}
}
