// Package librarytest opens a separate library for each test.
package librarytest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"pgfresh.invalid/pgfreshtest"
)

// Open returns a pool of connections to a fresh database with the library's tables. It closes the pool when the test
// ends.
func Open(tb testing.TB, options ...pgfreshtest.Option) *pgxpool.Pool {
	tb.Helper()
	return Connect(tb, pgfreshtest.New(tb, options...))
}

// Connect returns a pool of connections to a test's database. It closes the pool when the test ends.
func Connect(tb testing.TB, db *pgfreshtest.Database) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), db.URL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}
