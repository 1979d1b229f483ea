package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lib/pq"
)

var input = bufio.NewReader(os.Stdin)

// script is what a program runs: the URL, the isolation level (or "none" to run without a transaction), a first
// statement, and the failing statement.
type script struct{ url, level, first, failing string }

// faults prints how a statement fails through a driver. It prints "ready" before the failing statement and waits for
// another line, so that the test can provoke the error.
func faults(play func(context.Context, script)) {
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		play(context.Background(), script{words[0], words[1], words[2], words[3]})
		fmt.Println("done")
	}
}

func ready() {
	fmt.Println("ready")
	_, err := input.ReadString('\n')
	check(err)
}

func seen(name string, err error) {
	var fromPgx *pgconn.PgError
	var fromPq *pq.Error
	switch {
	case err == nil:
		fmt.Println(name, "ok")
	case errors.As(err, &fromPgx):
		fmt.Println(name, fmt.Sprintf("%T", err), fromPgx.Code, fromPgx.Severity, fromPgx.Message, fromPgx.Detail, fromPgx.Hint,
			fromPgx.Routine)
	case errors.As(err, &fromPq):
		fmt.Println(name, fmt.Sprintf("%T", err), fromPq.Code, fromPq.Severity, fromPq.Message, fromPq.Detail, fromPq.Hint,
			fromPq.Routine)
	default:
		fmt.Println(name, fmt.Sprintf("%T", err), err)
	}
}

func playPgx(ctx context.Context, script script) {
	config, err := pgxpool.ParseConfig(script.url)
	check(err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(ctx, config)
	check(err)
	defer pool.Close()
	connection, err := pool.Acquire(ctx)
	check(err)
	pid := connection.Conn().PgConn().PID()
	switch {
	case script.failing == "CONNECT":
		ready()
		other, err := pgx.Connect(ctx, script.url)
		seen("connect", err)
		if err == nil {
			check(other.Close(ctx))
		}
	case script.level == "none":
		_, err := connection.Exec(ctx, script.first)
		check(err)
		ready()
		_, err = connection.Exec(ctx, script.failing)
		seen("statement", err)
	default:
		transactionOfPgx(ctx, connection, script)
	}
	fmt.Println("closed", connection.Conn().IsClosed(), "status", connection.Conn().PgConn().TxStatus())
	_, err = connection.Exec(ctx, "SELECT 1")
	seen("select", err)
	connection.Release()
	next, err := pool.Acquire(ctx)
	check(err)
	fmt.Println("pool kept", next.Conn().PgConn().PID() == pid)
	_, err = next.Exec(ctx, "SELECT 1")
	seen("next", err)
	next.Release()
}

func transactionOfPgx(ctx context.Context, connection *pgxpool.Conn, script script) {
	transaction, err := connection.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(script.level)})
	check(err)
	_, err = transaction.Exec(ctx, script.first)
	check(err)
	ready()
	if script.failing != "COMMIT" {
		_, err = transaction.Exec(ctx, script.failing)
		seen("statement", err)
		seen("rollback", transaction.Rollback(ctx))
		return
	}
	seen("commit", transaction.Commit(ctx))
	seen("rollback", transaction.Rollback(ctx))
}

func playPq(ctx context.Context, script script) {
	pool, err := sql.Open("postgres", script.url)
	check(err)
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	connection, err := pool.Conn(ctx)
	check(err)
	pid := pidOf(ctx, connection)
	switch {
	case script.failing == "CONNECT":
		ready()
		other, err := sql.Open("postgres", script.url)
		check(err)
		seen("connect", other.PingContext(ctx))
		check(other.Close())
	case script.level == "none":
		_, err := connection.ExecContext(ctx, script.first)
		check(err)
		ready()
		_, err = connection.ExecContext(ctx, script.failing)
		seen("statement", err)
	default:
		transactionOfPq(ctx, connection, script)
	}
	_, err = connection.ExecContext(ctx, "SELECT 1")
	seen("select", err)
	// If the driver has found the connection broken, it is already closed, so ignore the error.
	_ = connection.Close()
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	next, err := pool.Conn(limited)
	check(err)
	fmt.Println("pool kept", pidOf(ctx, next) == pid)
	_, err = next.ExecContext(ctx, "SELECT 1")
	seen("next", err)
	check(next.Close())
}

func pidOf(ctx context.Context, connection *sql.Conn) (pid int) {
	check(connection.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

func transactionOfPq(ctx context.Context, connection *sql.Conn, script script) {
	levels := map[string]sql.IsolationLevel{
		"read committed":  sql.LevelReadCommitted,
		"repeatable read": sql.LevelRepeatableRead,
		"serializable":    sql.LevelSerializable,
	}
	transaction, err := connection.BeginTx(ctx, &sql.TxOptions{Isolation: levels[script.level]})
	check(err)
	_, err = transaction.ExecContext(ctx, script.first)
	check(err)
	ready()
	if script.failing != "COMMIT" {
		_, err = transaction.ExecContext(ctx, script.failing)
		seen("statement", err)
		seen("rollback", transaction.Rollback())
		return
	}
	seen("commit", transaction.Commit())
	seen("rollback", transaction.Rollback())
}
