// Package pgfreshtest gives each test a PostgreSQL database of its own: a fresh copy of the migrated template that
// pgfresh.toml describes.
//
//	func TestOrders(t *testing.T) {
//		t.Parallel()
//		db := pgfreshtest.New(t)
//		pool, err := pgxpool.New(t.Context(), db.URL)
//		...
//	}
//
// The database ends with the test; there is nothing to close. No driver is chosen here: URL is for pgx, for database/sql
// with any driver, and for whatever else reads PostgreSQL's URLs.
//
// Within "pgfresh run -- go test ./..." all packages use the server of that run. Otherwise they share the project's
// background server, by way of the pgfresh of PGFRESH_BIN, or else the one on PATH. It notices when a test binary ends,
// however that does.
package pgfreshtest

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
)

// A Database is fresh, and belongs to one test until that has ended.
type Database struct {
	// Name is the database's name in its server.
	Name string `json:"name"`

	// URL is postgresql://USER:PASSWORD@127.0.0.1:PORT/NAME. There is no TLS behind it: a driver that would insist on
	// that, as lib/pq does, wants "?sslmode=disable" after it.
	URL string `json:"url"`

	// JDBCURL is the same for programs in Java that a test starts.
	JDBCURL string `json:"jdbc_url"`

	// SocketURL leads to the same over a unix socket, without a password.
	SocketURL string `json:"socket_url"`

	// Template is the name of what the database is a copy of.
	Template string `json:"template"`

	// Recorded tells whether its statements are recorded: Record or a Budget asks for that, or [budget] in pgfresh.toml.
	Recorded bool `json:"recorded"`

	server *server
	test   testing.TB // that it is leased for
	limits limits
	resets int32 // by Reset; atomic
}

// An Option says what New shall lease.
type Option interface{ apply(*wishes) }

type option func(*wishes)

func (o option) apply(w *wishes) { o(w) }

// Template asks for a copy of that template of the server. Without it, it is the server's default one.
func Template(name string) Option {
	return option(func(w *wishes) { w.Template = name })
}

// Name asks for a database of that name, of at most 63 bytes. Without it, pgfresh makes one up.
func Name(name string) Option {
	return option(func(w *wishes) { w.Name = name })
}

// Isolation asks for that kind of isolation, in the words of pgfresh's HTTP API. Without it, it is the default one.
func Isolation(kind string) Option {
	return option(func(w *wishes) { w.Isolation = kind })
}

// Record lets pgfresh record what clients of the database run, for [Database.Statements]. A [Budget] does, too.
func Record() Option {
	return option(func(w *wishes) { w.Record = true })
}

// New leases a fresh database until tb ends, after the cleanups that are registered later. Without a database, tb fails at
// once. It may be called more than once, and by parallel tests.
//
// If tb has failed by then, pgfresh is told so. Where it keeps the databases of failed tests, tb's log says how to get there.
func New(tb testing.TB, options ...Option) *Database {
	tb.Helper()
	server, err := join()
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	wanted := wishes{Holder: server.holder}
	for _, option := range options {
		option.apply(&wanted)
	}
	database, err := server.lease(wanted)
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	database.server, database.test = server, tb
	tb.Cleanup(func() {
		tb.Helper()
		database.checkBudget(tb)
		database.release(tb)
	})
	return database
}

// release ends the lease.
func (d *Database) release(tb testing.TB) {
	tb.Helper()
	kept, err := d.server.release(d.Name, tb.Failed() || panicking(), nameOf(tb))
	if err != nil {
		tb.Errorf("pgfresh: %v", err)
	} else if kept != "" {
		tb.Logf("pgfresh: kept the database of the failed test: %s", kept)
	}
}

// packagePath is that of the tests of this binary, with a dot behind it; empty if it is not known.
var packagePath = func() string {
	info, known := debug.ReadBuildInfo()
	if !known {
		return ""
	}
	path, isTest := strings.CutSuffix(info.Path, ".test")
	if !isTest {
		return ""
	}
	return path + "."
}()

// nameOf returns a test's name as it is sent: tests of several packages may have the same.
func nameOf(tb testing.TB) string {
	name := tb.Name()
	if name != "" {
		name = packagePath + name
	}
	return name[:min(len(name), 1000)]
}

// panicking tells whether a panic ends the test, which has not failed before its cleanups are done.
func panicking() bool {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for {
		frame, more := frames.Next()
		if frame.Function == "runtime.gopanic" {
			return true
		}
		if !more {
			return false
		}
	}
}

// A ResetOption says what Reset may do.
type ResetOption func(*resetWishes)

// CloseSessions lets Reset end sessions that are still open. Without it, they are an error.
func CloseSessions() ResetOption {
	return func(w *resetWishes) { w.CloseSessions = true }
}

// Reset returns the database to the state of its template, in about a millisecond. If that cannot be, tb fails at once. If
// what ran before is beyond the [Budget], tb fails and goes on.
func (d *Database) Reset(tb testing.TB, options ...ResetOption) {
	tb.Helper()
	wanted := resetWishes{
		Test:       nameOf(d.test),
		Statements: json.Number(d.limits.statements),
		NPlusOne:   json.Number(d.limits.nPlusOne),
		Time:       d.limits.time,
	}
	for _, option := range options {
		option(&wanted)
	}
	exceeded, err := d.server.reset(d.Name, wanted)
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	atomic.AddInt32(&d.resets, 1)
	if exceeded != "" && !tb.Failed() {
		tb.Errorf("budget exceeded: %s", exceeded)
	}
}
