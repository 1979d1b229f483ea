package catalog_test

// These tests limit how many statements the catalog runs.

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"example/library/catalog"
	"example/library/librarytest"
	"pgfresh.invalid/pgfreshtest"
)

func TestAddIsOneTransactionOfTwoStatements(t *testing.T) {
	t.Parallel()
	// The limit includes BEGIN and COMMIT.
	pool := librarytest.Open(t, pgfreshtest.Budget{Statements: 4, NPlusOne: pgfreshtest.None})
	if err := catalog.Add(t.Context(), pool, emma, 9); err != nil {
		t.Fatal(err)
	}
}

func TestSearchIsOneQueryHoweverManyItFinds(t *testing.T) {
	t.Parallel()
	db := pgfreshtest.New(t, pgfreshtest.Record())
	pool := librarytest.Connect(t, db)
	for _, book := range []catalog.Book{persuasion, emma, austen} {
		if err := catalog.Add(t.Context(), pool, book, 1); err != nil {
			t.Fatal(err)
		}
	}
	statements := db.Statements(t, func() {
		if books, err := catalog.Search(t.Context(), pool, "austen"); err != nil || len(books) != 3 {
			t.Errorf("found %+v, %v", books, err)
		}
	})
	if statements.Count != 1 {
		t.Error(statements)
	}
}

// This test is slow on purpose: it runs a query for each row of another query. "pgfresh run --profile" finds it.
func TestCopiesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	pool := librarytest.Open(t)
	if err := catalog.Add(t.Context(), pool, emma, 12); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), "SELECT id FROM copies")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) != 12 {
		t.Fatalf("found %d copies: %v", len(ids), err)
	}
	for _, id := range ids {
		var isbn string
		if err := pool.QueryRow(t.Context(), "SELECT isbn FROM copies WHERE id = $1", id).Scan(&isbn); err != nil || isbn != emma.ISBN {
			t.Errorf("copy %d is of %q: %v", id, isbn, err)
		}
	}
}
