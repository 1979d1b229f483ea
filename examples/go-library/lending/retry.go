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

// maxAttempts is how often a transaction runs at most.
const maxAttempts = 3

// passing has the SQLSTATEs of errors that another attempt may not have: a serialization failure, a deadlock, and the end of
// the server's session.
var passing = []string{"40001", "40P01", "57P01"}

// retry runs work in a transaction, and again if that fails for a reason that passes. After a lost connection, the
// transaction may have been committed: work must change nothing the second time.
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
	// pgx reports a lost connection in each of these ways. The last one is that of a ROLLBACK on a connection that is closed.
	var lost *net.OpError
	return errors.As(err, &lost) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
