// Package drivers tests pgfreshtest with real servers and common drivers. It is a separate module, so that
// pgfreshtest doesn't depend on drivers.
package drivers

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"pgfresh.invalid/pgfreshtest"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func fruits(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT name FROM fruit ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func execute(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestEachTestHasAnotherDatabase(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgfreshtest.New(t).URL)
			execute(t, conn, "INSERT INTO fruit VALUES ('mine')")
			if got := fruits(t, conn); got != "mine" {
				t.Errorf("found %q, want mine alone", got)
			}
		})
	}
}

func TestOneTestCanHaveSeveralDatabases(t *testing.T) {
	t.Parallel()
	first, second := pgfreshtest.New(t), pgfreshtest.New(t)
	execute(t, connect(t, first.URL), "INSERT INTO fruit VALUES ('plum')")
	if got := fruits(t, connect(t, second.URL)); got != "" {
		t.Errorf("found %q in a fresh database", got)
	}
}

func TestOptionsSelectNameAndTemplate(t *testing.T) {
	t.Parallel()
	db := pgfreshtest.New(t, pgfreshtest.Template("template1"), pgfreshtest.Name("Größe/1 %"))
	if db.Name != "Größe/1 %" || db.Template != "template1" {
		t.Errorf("got %q of %q", db.Name, db.Template)
	}
	var name string
	var empty bool
	row := connect(t, db.URL).QueryRow(t.Context(), "SELECT current_database(), to_regclass('fruit') IS NULL")
	if err := row.Scan(&name, &empty); err != nil || name != db.Name || !empty {
		t.Errorf("found %q, empty: %v, %v", name, empty, err)
	}
}

func TestResetRestoresTemplate(t *testing.T) {
	t.Parallel()
	db := pgfreshtest.New(t)
	conn := connect(t, db.URL)
	execute(t, conn, "INSERT INTO fruit VALUES ('fig'); CREATE TABLE basket ()")
	db.Reset(t, pgfreshtest.CloseSessions())
	if got := fruits(t, connect(t, db.URL)); got != "" {
		t.Errorf("found %q after the reset", got)
	}
}

func TestDatabaseEndsWithTest(t *testing.T) {
	t.Parallel()
	const name = "short_lived"
	t.Run("first", func(t *testing.T) {
		execute(t, connect(t, pgfreshtest.New(t, pgfreshtest.Name(name)).URL), "INSERT INTO fruit VALUES ('old')")
	})
	if got := fruits(t, connect(t, pgfreshtest.New(t, pgfreshtest.Name(name)).URL)); got != "" {
		t.Errorf("found %q of the test before", got)
	}
}

func TestSocketReachesSameDatabase(t *testing.T) {
	t.Parallel()
	db := pgfreshtest.New(t)
	execute(t, connect(t, db.URL), "INSERT INTO fruit VALUES ('lime')")
	if got := fruits(t, connect(t, db.SocketURL)); got != "lime" {
		t.Errorf("found %q", got)
	}
}

func TestPgxPoolConnects(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgfreshtest.New(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var count int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM fruit").Scan(&count); err != nil || count != 0 {
		t.Errorf("counted %d: %v", count, err)
	}
}

func TestDatabaseSQLConnects(t *testing.T) {
	// lib/pq requires TLS by default, but only "pgfresh run --tls" enables TLS on the server.
	plain := "?sslmode=disable"
	if os.Getenv("PGSSLROOTCERT") != "" {
		plain = ""
	}
	for driver, suffix := range map[string]string{"pgx": "", "postgres": plain} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(driver, pgfreshtest.New(t).URL+suffix)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			if _, err := db.Exec("INSERT INTO fruit VALUES ($1)", "kiwi"); err != nil {
				t.Fatal(err)
			}
			var name string
			if err := db.QueryRow("SELECT name FROM fruit").Scan(&name); err != nil || name != "kiwi" {
				t.Errorf("read %q: %v", name, err)
			}
		})
	}
}
