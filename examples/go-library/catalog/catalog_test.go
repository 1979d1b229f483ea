package catalog_test

import (
	"errors"
	"slices"
	"testing"

	"example/library/catalog"
	"example/library/librarytest"
)

var (
	persuasion = catalog.Book{ISBN: "9780141439686", Title: "Persuasion", Author: "Jane Austen"}
	emma       = catalog.Book{ISBN: "9780141439587", Title: "Emma", Author: "Jane Austen"}
	austen     = catalog.Book{ISBN: "9780670894888", Title: "Jane Austen", Author: "Carol Shields"}
)

func titles(books []catalog.Book) (titles []string) {
	for _, book := range books {
		titles = append(titles, book.Title)
	}
	return titles
}

func TestSearchRanksTheTitleBeforeTheAuthor(t *testing.T) {
	t.Parallel()
	pool := librarytest.Open(t)
	for _, book := range []catalog.Book{persuasion, emma, austen} {
		if err := catalog.Add(t.Context(), pool, book, 1); err != nil {
			t.Fatal(err)
		}
	}
	for words, want := range map[string][]string{
		"austen":      {"Jane Austen", "Emma", "Persuasion"},
		"austen EMMA": {"Emma"},
		"shields":     {"Jane Austen"},
		"dickens":     nil,
	} {
		books, err := catalog.Search(t.Context(), pool, words)
		if err != nil {
			t.Fatal(err)
		}
		if got := titles(books); !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", words, got, want)
		}
	}
}

func TestAddAgainAddsCopiesAndCorrects(t *testing.T) {
	t.Parallel()
	pool := librarytest.Open(t)
	misspelt := emma
	misspelt.Title = "Ema"
	for _, book := range []catalog.Book{misspelt, emma} {
		if err := catalog.Add(t.Context(), pool, book, 2); err != nil {
			t.Fatal(err)
		}
	}
	want := emma
	want.Copies, want.Available = 4, 4
	if books, err := catalog.Search(t.Context(), pool, "emma"); err != nil || !slices.Equal(books, []catalog.Book{want}) {
		t.Errorf("found %+v, %v", books, err)
	}
}

func TestOnlyNumbersThatAreAnISBN(t *testing.T) {
	t.Parallel()
	pool := librarytest.Open(t)
	for _, number := range []string{"", "978014143958", "9780141439588", "978014143958X", "97801414395870"} {
		book := emma
		book.ISBN = number
		if err := catalog.Add(t.Context(), pool, book, 1); !errors.Is(err, catalog.ErrISBN) {
			t.Errorf("%q: %v", number, err)
		}
	}
	if books, err := catalog.Search(t.Context(), pool, "emma"); err != nil || len(books) != 0 {
		t.Errorf("found %+v, %v", books, err)
	}
}

func TestABookWithoutATitleLeavesNoCopies(t *testing.T) {
	t.Parallel()
	pool := librarytest.Open(t)
	nameless := emma
	nameless.Title = ""
	if err := catalog.Add(t.Context(), pool, nameless, 3); err == nil {
		t.Error("it was added")
	}
	var copies int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM copies").Scan(&copies); err != nil || copies != 0 {
		t.Errorf("%d copies, %v", copies, err)
	}
}
