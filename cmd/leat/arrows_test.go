package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrows are the folders of the module, and which others each may import. They
// meet here, in cmd, and so does the test of who may import whom.
var arrows = map[string][]string{
	"eventstore":  {},
	"migrations":  {},
	"projections": {"eventstore"},
	"commands":    {"eventstore"},
	"queries":     {"eventstore"},
	"replication": {"eventstore"},
	"api":         {"commands", "queries", "eventstore"},
	"cmd":         {"api", "commands", "eventstore", "migrations", "projections", "queries", "replication"},
}

// homes are the packages of others that one part of ours may use, by prefix.
var homes = map[string][]string{
	"github.com/gin-gonic/":                  {"leat/api/http"},
	"github.com/danielgtaylor/huma/":         {"leat/api/http"},
	"net/http":                               {"leat/api", "leat/cmd"},
	"github.com/pressly/goose/":              {"leat/migrations"},
	"github.com/jackc/pglogrepl":             {"leat/replication", "leat/cmd/leat/internal/bench"},
	"github.com/coder/websocket":             {"leat/api/ws", "leat/api/client"},
	"github.com/ThreeDotsLabs/":              {"leat/projections", "leat/api/pubsub"},
	"github.com/DataDog/sketches-go":         {"leat/projections", "leat/queries"},
	"github.com/spf13/":                      {"leat/cmd"},
	"github.com/lmittmann/tint":              {"leat/cmd"},
	"github.com/schollz/progressbar/":        {"leat/cmd"},
	"github.com/parquet-go/":                 {"leat/cmd/leat/internal/archive"},
	"github.com/HdrHistogram/":               {"leat/cmd"},
	"github.com/prometheus/procfs":           {"leat/cmd"},
	"golang.org/x/term":                      {"leat/cmd"},
	"github.com/stretchr/":                   {"leat/migrations/dbtest"},
	"go.uber.org/goleak":                     {"leat/migrations/dbtest"},
	"pgregory.net/rapid":                     {},
	"github.com/santhosh-tekuri/jsonschema/": {},
	"testing":                                {"leat/migrations/dbtest"},
}

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath string
	Imports    []string // of its code, not of its tests
}

func TestArrows(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		from := folder(p.ImportPath)
		require.Contains(t, arrows, from, "%s: the folders at the top are fixed", p.ImportPath)
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, "leat/") {
				to := folder(imported)
				require.True(t, from == to || slices.Contains(arrows[from], to), "%s must not import %s", p.ImportPath, imported)
			}
			for prefix, home := range homes {
				if within(imported, prefix) {
					require.True(t, slices.ContainsFunc(home, func(h string) bool { return within(p.ImportPath, h) }),
						"%s must not import %s", p.ImportPath, imported)
				}
			}
		}
	}
}

func listPackages(t *testing.T) (list []goPackage) {
	t.Helper()
	list = []goPackage{}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "leat/...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		list = append(list, p)
	}
	require.Greater(t, len(list), len(arrows))
	return list
}

// folder is the part of a path of ours that the arrows are between.
func folder(path string) string {
	return strings.Split(path, "/")[1]
}

// within says whether path is prefix or below it.
func within(path, prefix string) bool {
	return strings.HasPrefix(path+"/", strings.TrimSuffix(prefix, "/")+"/")
}
