package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	httpapi "leat/api/http"
	"leat/api/ws"
	"leat/eventstore"
)

// browserPatience is more than others need: a browser takes its time to start.
const browserPatience = 90 * time.Second

// report is what the page says.
type report struct {
	State  string `json:"state"`
	Offset int    `json:"offset"`
	Next   int    `json:"next"`
	Code   any    `json:"code"`
}

// pages serve the example page, tell what it reports, and what it is to do then.
type pages struct {
	t       *testing.T
	url     string
	reports chan report
	orders  chan string // an order is taken with the answer to a report, "" is none
}

// reporter goes in front of the page's own script. Reports go one by one.
const reporter = `<script>
let last = Promise.resolve();
document.addEventListener('leat', event => {
  last = last.then(() => fetch('/report', { method: 'POST', body: JSON.stringify(event.detail) }))
    .then(answer => answer.text()).then(order => {
      if (order === 'reload') location.reload();
      else if (order !== '') location.href = order;
    });
});
</script>`

func servePages(t *testing.T) *pages {
	t.Helper()
	page, err := os.ReadFile("../ws/examples/page.html")
	require.NoError(t, err)
	p := &pages{t: t, reports: make(chan report), orders: make(chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, err := io.WriteString(w, strings.Replace(string(page), "<script>", reporter+"<script>", 1))
		assert.NoError(t, err)
	})
	mux.HandleFunc("POST /report", func(w http.ResponseWriter, r *http.Request) {
		var said report
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&said))
		select {
		case p.reports <- said:
		case <-r.Context().Done():
			return
		}
		_, err := io.WriteString(w, <-p.orders)
		assert.NoError(t, err)
	})
	server := httptest.NewServer(mux)
	p.url = server.URL
	t.Cleanup(func() {
		close(p.orders) // for a report that nobody waits for
		server.CloseClientConnections()
		server.Close()
	})
	return p
}

// at is the address of the page, for a subscription.
func (p *pages) at(socket string, more ...string) string {
	query := url.Values{"url": {socket}}
	for i := 0; i < len(more); i += 2 {
		query.Set(more[i], more[i+1])
	}
	return p.url + "/page?" + query.Encode()
}

// expect waits for a report and answers with an order.
func (p *pages) expect(order string, want report) {
	p.t.Helper()
	select {
	case said := <-p.reports:
		p.orders <- order
		require.Equal(p.t, want, said)
	case <-time.After(browserPatience):
		require.FailNow(p.t, "the page says nothing", "instead of %+v", want)
	}
}

// A page of another origin reads a stream, and goes on where it was after a
// reload, a restart of the broker, and with a point; one of a forbidden origin
// gets nothing.
func TestBrowser(t *testing.T) {
	browser := findBrowser(t)
	t.Parallel()
	allowed, forbidden := servePages(t), servePages(t)
	origins, err := ws.ParseOrigins([]string{allowed.url})
	require.NoError(t, err)
	s := setupFake(t, httpapi.Config{Origins: origins})
	socket := strings.Replace(s.url, "http://", "ws://", 1) + "/v1/streams/s/subscribe"
	s.stream.Publish(`{"n":0}`, `{"n":1}`, `"<b>"`)
	stop := startBrowser(t, browser, allowed.at(socket, "from", "earliest"))

	allowed.expect("", report{State: "open"})
	allowed.expect("", report{State: "message"})
	allowed.expect("", report{State: "message", Offset: 1})
	s.stream.Publish(`3`)
	allowed.expect("reload", report{State: "message", Offset: 2})

	// Message 3 may have reached the page before the reload; its report did not.
	next := allowed.skipTo(t, "open").Next
	require.Contains(t, []int{3, 4}, next)
	if next == 3 {
		allowed.expect("", report{State: "message", Offset: 3})
	}
	s.stream.End(eventstore.NewError(eventstore.ShuttingDown, "The broker stops."))
	allowed.expect("", report{State: "error", Code: "shutting_down"})
	allowed.expect("", report{State: "closed", Code: 1001.0})
	s.stream.Publish(`4`)
	allowed.expect("", report{State: "open", Next: 4})
	allowed.expect(allowed.at(socket, "point", "p", "from", "3"), report{State: "message", Offset: 4})

	// With a point the broker knows the place.
	allowed.expect("", report{State: "open", Next: 3})
	allowed.expect("", report{State: "message", Offset: 3})
	allowed.expect("", report{State: "message", Offset: 4})
	allowed.expect("reload", report{State: "committed", Offset: 4})
	allowed.expect("", report{State: "open", Next: 5})
	s.stream.Publish(`5`)
	allowed.expect("", report{State: "message", Offset: 5})
	allowed.expect("", report{State: "committed", Offset: 5})
	s.stream.End(eventstore.NewError(eventstore.PointTaken, "Another consumer reads."))
	allowed.expect("", report{State: "error", Code: "point_taken"})
	allowed.expect(forbidden.at(socket, "from", "earliest"), report{State: "stopped", Code: 4501.0})

	forbidden.expect("", report{State: "closed", Code: 1006.0})
	forbidden.expect("", report{State: "closed", Code: 1006.0})
	stop()
}

// skipTo passes over reports of before the reload.
func (p *pages) skipTo(t *testing.T, state string) report {
	t.Helper()
	for {
		select {
		case said := <-p.reports:
			p.orders <- ""
			if said.State == state {
				return said
			}
		case <-time.After(browserPatience):
			require.FailNow(t, "the page says nothing", "instead of "+state)
		}
	}
}

func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("NOT TESTED: a page in a browser, for there is no chromium, chromium-browser or google-chrome")
	return ""
}

// startBrowser opens a page; what it answers ends the browser, as the end of the
// test does.
func startBrowser(t *testing.T, path, page string) (stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "leat-browser-") // a t.TempDir would be removed under its last writes
	require.NoError(t, err)
	// No context ends it: its whole process group is ended below.
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+dir, page)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(dir + "/log")
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	var stopped atomic.Bool
	stop = func() {
		if stopped.Swap(true) {
			return
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			if data, err := os.ReadFile(log.Name()); err == nil {
				t.Logf("the browser said: %s", data[max(0, len(data)-2000):])
			}
		}
		// Its children may still be writing for a moment.
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, patience, 10*time.Millisecond)
	}
	t.Cleanup(stop)
	return stop
}
