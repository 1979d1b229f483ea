// Package lending tracks who has borrowed which copy, for how long, and who is waiting for a book.
package lending

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Rules of the library.
const (
	Days        = 28  // duration of a loan
	MaxLoans    = 3   // maximum number of concurrent loans per member
	MaxRenewals = 2   // maximum number of renewals per loan
	FinePerDay  = 25  // fine in cents for each day that a copy is late
	MaxDebt     = 500 // maximum debt in cents of a member who borrows
)

// Reasons for refusing a request.
var (
	ErrUnknown     = errors.New("there is no such thing")
	ErrUnavailable = errors.New("all copies are lent or on hold for others")
	ErrTooMany     = errors.New("the member has as many loans as allowed")
	ErrDebt        = errors.New("the member owes too much")
	ErrWanted      = errors.New("others wait for the book")
	ErrRenewed     = errors.New("the loan was renewed as often as allowed")
)

// A Desk lends books. Today returns the current date.
type Desk struct {
	Pool  *pgxpool.Pool
	Today func() time.Time
}

// A Loan is a copy that a member has borrowed, and possibly returned.
type Loan struct {
	ID       int64     `json:"id"`
	ISBN     string    `json:"isbn"`
	Member   int64     `json:"member"`
	Due      time.Time `json:"due"`
	Renewals int       `json:"renewals"`
}

// Join registers a new member.
func (d Desk) Join(ctx context.Context, name, email string) (id int64, err error) {
	err = d.Pool.QueryRow(ctx, "INSERT INTO members (name, email) VALUES ($1, $2) RETURNING id", name, email).Scan(&id)
	return id, err
}

// Borrow lends a copy of the book to the member, and removes the member from the waiting list for the book.
func (d Desk) Borrow(ctx context.Context, member int64, isbn string) (loan Loan, err error) {
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		if err := mayBorrow(ctx, tx, member); err != nil {
			return err
		}
		free, err := freeCopy(ctx, tx, member, isbn)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM holds WHERE isbn = $1 AND member = $2", isbn, member); err != nil {
			return err
		}
		today := d.Today()
		loan = Loan{ISBN: isbn, Member: member, Due: today.AddDate(0, 0, Days)}
		return tx.QueryRow(ctx, "INSERT INTO loans (copy, member, since, due) VALUES ($1, $2, $3, $4) RETURNING id, due",
			free, member, today, loan.Due).Scan(&loan.ID, &loan.Due)
	})
	return loan, err
}

// mayBorrow locks the member, so that two concurrent requests can't both use the last allowed loan. It counts the loans
// in a separate statement, because the statement that locks sees only loans from before it had to wait.
func mayBorrow(ctx context.Context, tx pgx.Tx, member int64) error {
	tag, err := tx.Exec(ctx, "SELECT FROM members WHERE id = $1 FOR UPDATE", member)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return ErrUnknown
	}
	var loans, debt int
	err = tx.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM loans WHERE member = $1 AND returned IS NULL),
			coalesce((SELECT cents FROM debts WHERE member = $1), 0)`, member).Scan(&loans, &debt)
	switch {
	case err != nil:
		return err
	case loans >= MaxLoans:
		return ErrTooMany
	case debt > MaxDebt:
		return ErrDebt
	}
	return nil
}

// freeCopy finds a copy that nobody has borrowed. It reserves one copy for each member who is ahead in the queue.
func freeCopy(ctx context.Context, tx pgx.Tx, member int64, isbn string) (int64, error) {
	// Requests for the same book wait here, because otherwise two members could get the same copy.
	tag, err := tx.Exec(ctx, "SELECT FROM books WHERE isbn = $1 FOR UPDATE", isbn)
	if err != nil {
		return 0, err
	}
	if tag.RowsAffected() == 0 {
		return 0, ErrUnknown
	}
	var id int64
	err = tx.QueryRow(ctx, `
		SELECT id FROM copies c
		WHERE isbn = $1 AND NOT EXISTS (SELECT FROM loans WHERE copy = c.id AND returned IS NULL)
		ORDER BY id
		OFFSET (
			SELECT count(*) FROM holds h
			WHERE isbn = $1
			AND NOT EXISTS (SELECT FROM holds own WHERE isbn = $1 AND member = $2 AND own.id <= h.id)
		)
		LIMIT 1`, isbn, member).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrUnavailable
	}
	return id, err
}

// Hold puts the member at the end of the queue for the book, unless the member is already in the queue. It returns the
// member's position, counted from 1.
func (d Desk) Hold(ctx context.Context, member int64, isbn string) (place int, err error) {
	err = retry(ctx, d.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO holds (isbn, member) VALUES ($1, $2) ON CONFLICT DO NOTHING", isbn, member)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
			SELECT count(*) FROM holds
			WHERE isbn = $1 AND id <= (SELECT id FROM holds WHERE isbn = $1 AND member = $2)`, isbn, member).Scan(&place)
	})
	return place, err
}

// Renew extends the loan, which then lasts Days from today.
func (d Desk) Renew(ctx context.Context, id int64) (loan Loan, err error) {
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		var wanted bool
		err := tx.QueryRow(ctx, `
			SELECT l.id, c.isbn, member, due, renewals, EXISTS (SELECT FROM holds WHERE holds.isbn = c.isbn)
			FROM loans l JOIN copies c ON c.id = l.copy
			WHERE l.id = $1 AND returned IS NULL
			FOR UPDATE OF l`, id).Scan(&loan.ID, &loan.ISBN, &loan.Member, &loan.Due, &loan.Renewals, &wanted)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrUnknown
		case err != nil:
			return err
		case wanted:
			return ErrWanted
		case loan.Renewals >= MaxRenewals:
			return ErrRenewed
		}
		return tx.QueryRow(ctx, "UPDATE loans SET due = $2, renewals = renewals + 1 WHERE id = $1 RETURNING due, renewals",
			id, d.Today().AddDate(0, 0, Days)).Scan(&loan.Due, &loan.Renewals)
	})
	return loan, err
}

// Return takes the copy back. The fine, in cents, is 0 unless the copy is late.
func (d Desk) Return(ctx context.Context, id int64) (fine int, err error) {
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		var late int
		err := tx.QueryRow(ctx, `
			UPDATE loans SET returned = $2 WHERE id = $1 AND returned IS NULL
			RETURNING greatest(0, returned - due)`, id, d.Today()).Scan(&late)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrUnknown
		}
		if err != nil || late == 0 {
			return err
		}
		fine = late * FinePerDay
		_, err = tx.Exec(ctx, "INSERT INTO fines (loan, cents) VALUES ($1, $2)", id, fine)
		return err
	})
	return fine, err
}

// Pay settles all of the member's fines, and returns their sum.
func (d Desk) Pay(ctx context.Context, member int64) (cents int, err error) {
	err = d.Pool.QueryRow(ctx, `
		WITH settled AS (
			UPDATE fines SET paid = true FROM loans
			WHERE loans.id = loan AND member = $1 AND NOT paid
			RETURNING cents
		)
		SELECT coalesce(sum(cents), 0)::int FROM settled`, member).Scan(&cents)
	return cents, err
}
