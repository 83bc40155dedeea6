package main

import (
	"os"
	"testing"

	"leat/migrations/dbtest"
)

// mainEnv makes the test binary the real program.
const mainEnv = "LEAT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
	}
	// What a developer has set must not reach the tests.
	for _, name := range []string{"LEAT_URL", "LEAT_CLIENT", "LEAT_LISTEN", "LEAT_DATA", "LEAT_DATABASE_URL", "LEAT_DIRECT_URL"} {
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
	os.Exit(dbtest.Main(m, functions()...))
}
