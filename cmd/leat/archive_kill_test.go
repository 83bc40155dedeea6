package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/cmd/leat/internal/archive"
	"leat/migrations/dbtest"
)

// gate is a way to a broker on which a request, or its answer, can be held up.
type gate struct {
	*testing.T
	url string

	mu      sync.Mutex
	path    string        // of the request to hold, "" for none
	after   int           // bytes of its answer; less than 0: the request
	reached chan struct{} // closed when it is held
	free    chan bool     // whether it may go on
}

func newGate(t *testing.T, broker string) *gate {
	t.Helper()
	target, err := url.Parse(broker)
	require.NoError(t, err)
	g := &gate{T: t}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // answers end on purpose
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ModifyResponse: func(r *http.Response) error {
			if after, ok := g.holds(r.Request.URL.Path); ok && after >= 0 {
				r.Body = &heldBody{ReadCloser: r.Body, gate: g, left: after}
			}
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if after, ok := g.holds(r.URL.Path); ok && after < 0 && !g.wait() {
			w.WriteHeader(http.StatusBadGateway) // nobody is there any more
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *gate) holds(path string) (after int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.after, g.path != "" && path == g.path
}

// hold holds the next one.
func (g *gate) hold(path string, after int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.path, g.after, g.reached, g.free = path, after, make(chan struct{}), make(chan bool, 1)
}

// release lets what is held go on, or not, and holds nothing more.
func (g *gate) release(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.path = ""
	g.free <- on
}

// wait holds whoever calls it, and says whether to go on. It is called once for each
// hold.
func (g *gate) wait() bool {
	g.mu.Lock()
	reached, free := g.reached, g.free
	g.mu.Unlock()
	close(reached)
	return <-free
}

// heldBody stops after some bytes.
type heldBody struct {
	io.ReadCloser
	gate *gate
	left int
}

func (b *heldBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.left = -1
		if !b.gate.wait() {
			return 0, io.ErrUnexpectedEOF
		}
	}
	if b.left > 0 {
		p = p[:min(len(p), b.left)]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= n
	}
	return n, err
}

// archiving is what is archived, again and again, by runs that are killed.
type archiving struct {
	*testing.T
	broker *process
	gate   *gate
	dir    string
	format string
}

// start runs the real leat archive.
func (a *archiving) start() *exec.Cmd {
	a.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(a.Context()), os.Args[0], "archive", "--to", a.dir, "--format", a.format)
	cmd.Env = append(os.Environ(), mainEnv+"=1", "LEAT_URL="+a.gate.url)
	require.NoError(a, cmd.Start())
	return cmd
}

// kill kills a run where a request is held, and answers the files that it left.
func (a *archiving) kill(path string, after int, later time.Duration) (files []string) {
	a.Helper()
	a.gate.hold(path, after)
	running := a.start()
	select {
	case <-a.gate.reached:
	case <-time.After(patience):
		a.Error("it does not come so far")
	}
	if later > 0 { // at any moment from there on
		a.gate.release(true)
		pauseFor(a.Context(), later)
	}
	require.NoError(a, running.Process.Kill())
	_ = running.Wait() // it was killed
	if later == 0 {
		a.gate.release(false)
	}
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		require.ErrorIs(a, err, os.ErrNotExist)
	}
	for _, entry := range entries {
		files = append(files, entry.Name())
	}
	a.whole()
	// The next run finds more than this one did.
	a.broker.leat("publish", "orders", fmt.Sprint(rand.Int64()))
	return files
}

// whole holds what the archive has against the log: it may have nothing.
func (a *archiving) whole() (m archive.Manifest) {
	a.Helper()
	m, err := archive.Open(a.dir)
	require.NoError(a, err)
	if len(m.Files) == 0 {
		return m
	}
	last := m.Files[len(m.Files)-1].To.String()
	if a.broker.leat("replay", "--to", last) != a.broker.leat("replay", "--archive", a.dir) { // they are too long to print
		a.Fatal("the archive is not the log")
	}
	return m
}

// G2: leat archive is killed in the middle of a file, between a file and its note in
// the log, and at moments that nobody chose; whatever it leaves is whole, and the next
// run goes on from there.
func TestG2ArchiveKilled(t *testing.T) {
	t.Parallel()
	_, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database, "--projections=false")
	broker.leat("channel", "declare", "orders")
	noise := rand.NewChaCha8([32]byte{})
	var lines bytes.Buffer
	for range 600 {
		payload := make([]byte, 3000)
		_, _ = noise.Read(payload) // never fails
		fmt.Fprintf(&lines, "{\"payload\":\"%x\"}\n", payload)
	}
	broker.exits(exitOK, lines.String(), "publish", "orders", "--ndjson")
	for _, format := range []string{"ndjson", "parquet"} {
		a := &archiving{T: t, broker: broker, gate: newGate(t, broker.url), dir: filepath.Join(t.TempDir(), format), format: format}
		for range 4 {
			files := strings.Join(a.kill("/v1/events", rand.IntN(lines.Len()), 0), " ")
			require.Regexp(t, `^events-\S+\.tmp manifest\.json$`, files) // of one run only
		}
		files := a.kill("/v1/log/archived", -1, 0)
		require.Len(t, files, 2, "a file, and a manifest that has it")
		require.NotContains(t, broker.leat("replay", "--kind", "log.archived"), files[0])
		for range 3 {
			a.kill("/v1/log/seal", -1, rand.N(100*time.Millisecond))
		}
		broker.leat("archive", "--to", a.dir)
		m := a.whole()
		notes := broker.leat("replay", "--kind", "log.archived")
		known := []string{"manifest.json"}
		for _, f := range m.Files {
			known = append(known, f.Name)
			require.Equal(t, 1, strings.Count(notes, f.SHA256.String()), "each file is noted once")
		}
		entries, err := os.ReadDir(a.dir)
		require.NoError(t, err)
		for _, entry := range entries {
			require.Contains(t, known, entry.Name())
		}
		require.Contains(t, broker.leat("verify", "--chain"), "the log is what was sealed")
	}
}
