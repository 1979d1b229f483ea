// Package pgfreshtest leases a PostgreSQL database for each test: a fresh copy of the migrated template that
// pgfresh.toml describes.
//
//	func TestOrders(t *testing.T) {
//		t.Parallel()
//		db := pgfreshtest.New(t)
//		pool, err := pgxpool.New(t.Context(), db.URL)
//		...
//	}
//
// pgfresh removes the database when the test ends, so a test doesn't need to close anything. The package has no
// driver: use URL with pgx, with any database/sql driver, and with other programs that read PostgreSQL URLs.
//
// Within "pgfresh run -- go test ./..." all packages use the server of that run. Otherwise they start the binary that
// PGFRESH_BIN names, or the one on PATH, and share the project's background server. However a test binary ends, pgfresh
// releases the databases that this test binary leased.
package pgfreshtest

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
)

// A Database is a fresh copy of a template. It belongs to one test until the test ends.
type Database struct {
	// Name is the name of the database, unique on its server.
	Name string `json:"name"`

	// URL is postgresql://USER:PASSWORD@127.0.0.1:PORT/NAME. The server has no TLS by default: add "?sslmode=disable"
	// for a driver that requires TLS, such as lib/pq.
	URL string `json:"url"`

	// JDBCURL is the URL for Java programs that a test starts.
	JDBCURL string `json:"jdbc_url"`

	// SocketURL is the URL with the server's unix socket, without a password.
	SocketURL string `json:"socket_url"`

	// ReplicaURL is the URL of the replica. It is empty if the template has no replica.
	ReplicaURL string `json:"replica_url"`

	// Template is the name of the template that the database is a copy of.
	Template string `json:"template"`

	// Recorded reports whether pgfresh records the statements. Record, a Budget, and [budget] in pgfresh.toml enable
	// this.
	Recorded bool `json:"recorded"`

	server *server
	test   testing.TB // owner of the lease
	limits limits
	resets int32 // number of Reset calls; atomic
	faulty int32 // 1 if Fault was called since New or the last Reset; atomic
}

// An Option changes which database New leases, or how.
type Option interface{ apply(*leaseRequest) }

type option func(*leaseRequest)

func (o option) apply(request *leaseRequest) { o(request) }

// Template selects a template of the server. Default: the one in pgfresh.toml.
func Template(name string) Option {
	return option(func(request *leaseRequest) { request.Template = name })
}

// Name sets the database name, at most 63 bytes. Default: pgfresh generates a name.
func Name(name string) Option {
	return option(func(request *leaseRequest) { request.Name = name })
}

// Isolation selects the isolation of the database. The HTTP API documentation lists the kinds.
func Isolation(kind string) Option {
	return option(func(request *leaseRequest) { request.Isolation = kind })
}

// Record makes pgfresh record the statements, for [Database.Statements]. A [Budget] implies Record.
func Record() Option {
	return option(func(request *leaseRequest) { request.Record = true })
}

// New leases a fresh database until tb ends, and releases it after the cleanups that tb registers later. An error
// fails tb immediately. A test can call New several times, and parallel tests can call New concurrently.
//
// When New releases the database of a failed test, it reports the failure to pgfresh. If pgfresh keeps the database,
// New logs the URL of this database to tb.
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

// release ends the lease, and logs the URL of the database if pgfresh keeps it. If a fault that was requested with
// SQL never fired, release fails the test.
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

// packagePath is the package path of this test binary, followed by a dot. It is empty if the build information
// doesn't name the package of a test.
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

// nameOf returns the name of a test for reports, at most 1000 bytes. The name includes the package path, because
// tests in several packages can have the same name.
func nameOf(tb testing.TB) string {
	name := tb.Name()
	if name != "" {
		name = packagePath + name
	}
	return name[:min(len(name), 1000)]
}

// panicking reports whether the test is ending with a panic. Package testing marks this test as failed only after its
// cleanups, so tb.Failed doesn't show the panic yet.
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

// CloseSessions makes Reset close open sessions. Without CloseSessions, an open session is an error.
func CloseSessions() ResetOption {
	return func(request *resetRequest) { request.CloseSessions = true }
}

// Reset restores the state of the template, in about a millisecond. An error fails tb immediately. If the statements
// before the reset exceed the [Budget], or a [Fault] requested before the reset never fired, tb fails but continues.
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
