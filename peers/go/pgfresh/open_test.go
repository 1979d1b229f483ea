package pgfresh

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"pgfresh/pgfreshtest"
)

func open(tb testing.TB) *sql.DB {
	db, err := sql.Open("pgx", pgfreshtest.New(tb).URL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}
