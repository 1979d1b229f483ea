// Package catalog manages the books that the library owns.
package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrISBN means that a number isn't a 13-digit ISBN.
var ErrISBN = errors.New("not an ISBN")

// A Book is a title. The library can own several copies of it.
type Book struct {
	ISBN   string `json:"isbn"`
	Title  string `json:"title"`
	Author string `json:"author"`
	// Copies is how many copies the library owns. Available is how many of these copies nobody has borrowed.
	Copies    int `json:"copies"`
	Available int `json:"available"`
}

// Add adds copies of a book to the catalog. If the catalog already has the book, Add updates its title and author.
func Add(ctx context.Context, pool *pgxpool.Pool, book Book, copies int) error {
	if !valid(book.ISBN) {
		return fmt.Errorf("%w: %q", ErrISBN, book.ISBN)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO books (isbn, title, author) VALUES ($1, $2, $3)
			ON CONFLICT (isbn) DO UPDATE SET title = excluded.title, author = excluded.author`,
			book.ISBN, book.Title, book.Author)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO copies (isbn) SELECT $1 FROM generate_series(1, $2::int)", book.ISBN, copies)
		return err
	})
}

// Search finds books whose title or author contains all words. Books with matching titles come first.
func Search(ctx context.Context, pool *pgxpool.Pool, words string) ([]Book, error) {
	rows, err := pool.Query(ctx, `
		SELECT b.isbn, b.title, b.author,
			count(c.id) AS copies,
			count(c.id) FILTER (WHERE l.id IS NULL) AS available
		FROM books b
		LEFT JOIN copies c USING (isbn)
		LEFT JOIN loans l ON l.copy = c.id AND l.returned IS NULL
		WHERE b.words @@ plainto_tsquery('simple', $1)
		GROUP BY b.isbn
		ORDER BY ts_rank(b.words, plainto_tsquery('simple', $1)) DESC, b.title`, words)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Book])
}

// valid checks the length, the digits, and their weighted sum (ISO 2108:2017).
func valid(isbn string) bool {
	if len(isbn) != 13 {
		return false
	}
	sum := 0
	for i, digit := range isbn {
		if digit < '0' || digit > '9' {
			return false
		}
		sum += int(digit-'0') * (1 + i%2*2)
	}
	return sum%10 == 0
}
