// Package librarytest opens the library that each test has to itself.
package librarytest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"pgfresh.invalid/pgfreshtest"
)

// Open returns connections to a fresh database with the tables of the library, until the test ends.
func Open(tb testing.TB, options ...pgfreshtest.Option) *pgxpool.Pool {
	tb.Helper()
	return Connect(tb, pgfreshtest.New(tb, options...))
}

// Connect returns connections to the database of a test, until that ends.
func Connect(tb testing.TB, db *pgfreshtest.Database) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), db.URL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}
