package dbtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// PrepareAll has PostgreSQL prepare the statements of the package under test,
// which finds names that are misspelt and types that do not fit. None may be
// left out: a statement of the sources is a string that begins with its name,
// as in "-- commands.ack".
func PrepareAll(t *testing.T, statements ...string) {
	t.Helper()
	given := map[string]bool{}
	pool := New(t)
	for _, sql := range statements {
		name, ok := statementName(sql)
		require.True(t, ok, "a statement does not begin with its name: %s", sql)
		require.False(t, given[name], "two statements are called %s", name)
		given[name] = true
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), name, sql)
		conn.Release()
		require.NoError(t, err, name)
	}
	require.Equal(t, sourceStatements(t), slices.Sorted(maps.Keys(given)), "the statements of the sources are not those of the test")
}

// statementName reads the first line.
func statementName(sql string) (name string, ok bool) {
	line, _, _ := strings.Cut(sql, "\n")
	return strings.CutPrefix(line, "-- ")
}

// sourceStatements are the names of the statements in the current folder.
func sourceStatements(t *testing.T) (names []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, file := range files {
		if name := file.Name(); !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				if name, ok := statementName(text); ok && strings.HasPrefix(name, parsed.Name.Name+".") {
					names = append(names, name)
				}
			}
			return true
		})
	}
	slices.Sort(names)
	return names
}
