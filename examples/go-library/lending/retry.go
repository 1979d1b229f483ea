package lending

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxAttempts is the maximum number of times that a transaction runs.
const maxAttempts = 3

// passing has the SQLSTATEs of errors that are worth a retry: a serialization failure, a deadlock, and a session that
// the server ended.
var passing = []string{"40001", "40P01", "57P01"}

// retry runs work in a transaction, and retries after temporary errors. If the connection was lost, the transaction may
// have been committed, so work must not change anything the second time.
func retry(ctx context.Context, pool *pgxpool.Pool, work func(pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, pool, work)
		if err == nil || attempt == maxAttempts || !passes(err) {
			return err
		}
	}
}

func passes(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return slices.Contains(passing, refused.Code)
	}
	// pgx reports a lost connection in each of these ways. The last one is the error of a ROLLBACK on a closed
	// connection.
	var lost *net.OpError
	return errors.As(err, &lost) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
