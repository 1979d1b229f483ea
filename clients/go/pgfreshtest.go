// Package pgfreshtest leases a PostgreSQL database for each test: a fresh copy of the migrated template that pgfresh.toml
// describes.
//
//	func TestOrders(t *testing.T) {
//		t.Parallel()
//		db := pgfreshtest.New(t)
//		pool, err := pgxpool.New(t.Context(), db.URL)
//		...
//	}
//
// The database ends with the test, and a test need not close it. The package has no driver: URL is for pgx, for database/sql
// with any driver, and for other programs that read PostgreSQL's URLs.
//
// Within "pgfresh run -- go test ./..." all packages use the server of that run. Otherwise they start the binary that
// PGFRESH_BIN names, or the one on PATH, and share the project's background server. When a test binary ends in any way,
// pgfresh releases its databases.
package pgfreshtest

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
)

// A Database is a fresh copy of a template, which belongs to one test until the test ends.
type Database struct {
	// Name is the name of the database, unique on its server.
	Name string `json:"name"`

	// URL is postgresql://USER:PASSWORD@127.0.0.1:PORT/NAME. The server has no TLS by default: add "?sslmode=disable" for a
	// driver that requires TLS, such as lib/pq.
	URL string `json:"url"`

	// JDBCURL is the URL for Java programs that a test starts.
	JDBCURL string `json:"jdbc_url"`

	// SocketURL is the URL with the server's unix socket, without a password.
	SocketURL string `json:"socket_url"`

	// ReplicaURL is the URL of the replica. It is empty unless the template has one.
	ReplicaURL string `json:"replica_url"`

	// Template is the name of the template that the database is a copy of.
	Template string `json:"template"`

	// Recorded reports whether pgfresh records the statements: with Record, with a Budget, or with [budget] in pgfresh.toml.
	Recorded bool `json:"recorded"`

	server *server
	test   testing.TB // owner of the lease
	limits limits
	resets int32 // number of calls of Reset; atomic
	faulty int32 // 1 if Fault was called since New or the last Reset; atomic
}

// An Option changes the lease of New.
type Option interface{ apply(*leaseRequest) }

type option func(*leaseRequest)

func (o option) apply(request *leaseRequest) { o(request) }

// Template selects a template of the server. Default: the one in pgfresh.toml.
func Template(name string) Option {
	return option(func(request *leaseRequest) { request.Template = name })
}

// Name sets the name of the database, of at most 63 bytes. Default: pgfresh chooses one.
func Name(name string) Option {
	return option(func(request *leaseRequest) { request.Name = name })
}

// Isolation selects the isolation of the database, as in the documentation of the HTTP API.
func Isolation(kind string) Option {
	return option(func(request *leaseRequest) { request.Isolation = kind })
}

// Record lets pgfresh record the statements for [Database.Statements]. A [Budget] includes that.
func Record() Option {
	return option(func(request *leaseRequest) { request.Record = true })
}

// New leases a fresh database until tb ends. The release follows the cleanups that tb registers later. An error fails tb at
// once. A test can call New several times, and parallel tests can call it.
//
// The release reports a failed test to pgfresh. If pgfresh keeps the database, the log of tb has its URL.
func New(tb testing.TB, options ...Option) *Database {
	tb.Helper()
	server, err := join()
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	request := leaseRequest{Holder: server.holder}
	for _, option := range options {
		option.apply(&request)
	}
	database, err := server.lease(request)
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	database.server, database.test = server, tb
	tb.Cleanup(func() {
		tb.Helper()
		database.checkBudget(tb)
		database.checkFaults(tb)
		database.release(tb)
	})
	return database
}

// release ends the lease, and logs the URL of the database if pgfresh keeps it. It fails a test in which a fault of SQL never
// fired.
func (d *Database) release(tb testing.TB) {
	tb.Helper()
	failed := tb.Failed() || panicking()
	ended, err := d.server.release(d.Name, failed, nameOf(tb))
	if err != nil {
		tb.Errorf("pgfresh: %v", err)
		return
	}
	if ended.URL != "" {
		tb.Logf("pgfresh: kept the database of the failed test: %s", ended.URL)
	}
	if len(ended.Unfired) > 0 && !failed && !tb.Skipped() {
		tb.Errorf("pgfresh: %s", ended.message())
	}
}

// packagePath is the path of the package of this test binary, followed by a dot. It is empty if the binary has no such path.
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

// nameOf returns the name of a test for reports, at most 1000 bytes. It has the package, because tests of several packages can
// have equal names.
func nameOf(tb testing.TB) string {
	name := tb.Name()
	if name != "" {
		name = packagePath + name
	}
	return name[:min(len(name), 1000)]
}

// panicking reports whether a panic ends the test. Package testing marks such a test as failed only after its cleanups.
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

// A ResetOption changes the behavior of Reset.
type ResetOption func(*resetRequest)

// CloseSessions lets Reset close open sessions. Without it, an open session is an error.
func CloseSessions() ResetOption {
	return func(request *resetRequest) { request.CloseSessions = true }
}

// Reset restores the state of the template, in about a millisecond. An error fails tb at once. If the statements before the
// reset exceed the [Budget], or a [Fault] of before the reset never fired, tb fails and continues.
func (d *Database) Reset(tb testing.TB, options ...ResetOption) {
	tb.Helper()
	request := resetRequest{
		Test:       nameOf(d.test),
		Statements: json.Number(d.limits.statements),
		NPlusOne:   json.Number(d.limits.nPlusOne),
		Time:       d.limits.time,
	}
	for _, option := range options {
		option(&request)
	}
	ended, err := d.server.reset(d.Name, request)
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	atomic.AddInt32(&d.resets, 1)
	atomic.StoreInt32(&d.faulty, 0)
	if tb.Failed() {
		return
	}
	if ended.Message != "" {
		tb.Errorf("budget exceeded: %s", ended.Message)
	}
	if len(ended.Unfired) > 0 {
		tb.Errorf("pgfresh: %s", ended.message())
	}
}
