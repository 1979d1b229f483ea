// Command drivers tests pgx through the gateway at DATABASE_URL. Each function checks one guarantee.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const large = 64 << 20

// reach prints the database that a URL with several hosts leads to, and whether its server is a standby.
func reach(ctx context.Context, url string) {
	connection, err := pgx.Connect(ctx, url)
	check(err)
	defer connection.Close(ctx)
	database := value[string](ctx, connection, "SELECT current_database()")
	fmt.Println(database, value[bool](ctx, connection, "SELECT pg_is_in_recovery()"))
}

var where = func() string {
	address, err := url.Parse(os.Getenv("DATABASE_URL"))
	check(err)
	address.Path = "/pgx"
	return address.String()
}()

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func must(condition bool, what ...any) {
	if !condition {
		log.Panic(what...)
	}
}

func state(err error) string {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return fmt.Sprint(err)
}

func value[T any](ctx context.Context, connection *pgx.Conn, sql string, arguments ...any) (found T) {
	check(connection.QueryRow(ctx, sql, arguments...).Scan(&found))
	return found
}

func anyNameIsADatabase(ctx context.Context, connection *pgx.Conn) {
	must(value[string](ctx, connection, "SELECT current_database()") == "pgx")
	other, err := pgx.Connect(ctx, where+"?work_mem=123kB")
	check(err)
	defer other.Close(ctx)
	must(value[string](ctx, other, "SHOW work_mem") == "123kB")
}

func statementsArePrepared(ctx context.Context, connection *pgx.Conn) {
	_, err := connection.Prepare(ctx, "next", "SELECT $1::int + 1")
	check(err)
	for number := range make([]struct{}, 100) {
		must(value[int](ctx, connection, "next", number) == number+1)
	}
}

func rowsAreCopiedBothWays(ctx context.Context, connection *pgx.Conn) {
	_, err := connection.Exec(ctx, "CREATE TEMP TABLE t (n int, word text)")
	check(err)
	rows := make([][]any, 100_000)
	for number := range rows {
		rows[number] = []any{number, "X"}
	}
	copied, err := connection.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"n", "word"}, pgx.CopyFromRows(rows))
	check(err)
	must(copied == 100_000, copied)
	var out bytes.Buffer
	_, err = connection.PgConn().CopyTo(ctx, &out, "COPY (SELECT n FROM t ORDER BY n) TO STDOUT")
	check(err)
	must(strings.Count(out.String(), "\n") == 100_000)
}

func aStatementIsCancelled(ctx context.Context, connection *pgx.Conn) {
	other, err := pgx.Connect(ctx, where)
	check(err)
	defer other.Close(ctx)
	failed := make(chan error)
	go func() {
		_, err := connection.Exec(ctx, "SELECT pg_sleep(60)")
		failed <- err
	}()
	running := "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'"
	for value[int](ctx, other, running, connection.PgConn().PID()) == 0 {
	}
	check(connection.PgConn().CancelRequest(ctx))
	must(state(<-failed) == "57014")
	must(value[int](ctx, connection, "SELECT 1") == 1)
	// An expired context closes the connection.
	brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = other.Exec(brief, "SELECT pg_sleep(60)")
	must(errors.Is(err, context.DeadlineExceeded), err)
}

func batchesAndPipelinesNeedNoTurns(ctx context.Context, connection *pgx.Conn) {
	batch := &pgx.Batch{}
	for number := range make([]struct{}, 500) {
		batch.Queue("SELECT $1::int", number)
	}
	results := connection.SendBatch(ctx, batch)
	for number := range make([]struct{}, 500) {
		var found int
		check(results.QueryRow().Scan(&found))
		must(found == number, found)
	}
	check(results.Close())
	failing := &pgx.Batch{}
	failing.Queue("CREATE TABLE undone ()")
	failing.Queue("SELECT 1/0")
	must(state(connection.SendBatch(ctx, failing).Close()) == "22012")
	must(value[bool](ctx, connection, "SELECT to_regclass('undone') IS NULL"))
	pipeline := connection.PgConn().StartPipeline(ctx)
	pipeline.SendQueryParams("SELECT 1/0", nil, nil, nil, nil)
	check(pipeline.Sync())
	pipeline.SendQueryParams("SELECT 7", nil, nil, nil, nil)
	check(pipeline.Sync())
	_, err := pipeline.GetResults()
	must(state(err) == "22012", err)
	_, err = pipeline.GetResults()
	check(err)
	results2, err := pipeline.GetResults()
	check(err)
	result := results2.(*pgconn.ResultReader).Read()
	must(string(result.Rows[0][0]) == "7")
	check(pipeline.Close())
}

func newsComesUnasked(ctx context.Context, connection *pgx.Conn) {
	_, err := connection.Exec(ctx, "LISTEN news")
	check(err)
	speaker, err := pgx.Connect(ctx, where)
	check(err)
	defer speaker.Close(ctx)
	_, err = speaker.Exec(ctx, "SELECT pg_notify('news', 'X')")
	check(err)
	news, err := connection.WaitForNotification(ctx)
	check(err)
	must(news.Payload == "X" && news.PID == speaker.PgConn().PID(), news)
}

func errorsAreRecoveredFrom(ctx context.Context, connection *pgx.Conn) {
	for sql, wanted := range map[string]string{"SELECT 1/0": "22012", "SELECT FROM nowhere": "42P01", "SELEC": "42601"} {
		transaction, err := connection.Begin(ctx)
		check(err)
		_, err = transaction.Exec(ctx, sql)
		must(state(err) == wanted, err)
		_, err = transaction.Exec(ctx, "SELECT 1")
		must(state(err) == "25P02", err)
		check(transaction.Rollback(ctx))
	}
	must(value[int](ctx, connection, "SELECT 1") == 1)
}

func valuesMayBeLarge(ctx context.Context, connection *pgx.Conn) {
	given := bytes.Repeat([]byte("pgfresh!"), large/8)
	must(bytes.Equal(value[[]byte](ctx, connection, "SELECT $1::bytea", given), given))
}

func aPoolReuses(ctx context.Context, _ *pgx.Conn) {
	pool, err := pgxpool.New(ctx, where+"?pool_max_conns=8")
	check(err)
	defer pool.Close()
	failed := make(chan error)
	for number := range make([]struct{}, 200) {
		go func(number int) {
			var found int
			err := pool.QueryRow(ctx, "SELECT $1::int", number).Scan(&found)
			if err == nil && found != number {
				err = fmt.Errorf("%d instead of %d", found, number)
			}
			failed <- err
		}(number)
	}
	for range make([]struct{}, 200) {
		check(<-failed)
	}
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "faults" {
		faults(map[string]func(context.Context, script){"pgx": playPgx, "lib/pq": playPq}[os.Args[2]])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if len(os.Args) > 1 {
		reach(ctx, os.Args[1])
		return
	}
	for _, promise := range []struct {
		name string
		keep func(context.Context, *pgx.Conn)
	}{
		{"any name is a database", anyNameIsADatabase},
		{"statements are prepared", statementsArePrepared},
		{"rows are copied both ways", rowsAreCopiedBothWays},
		{"a statement is cancelled", aStatementIsCancelled},
		{"batches and pipelines need no turns", batchesAndPipelinesNeedNoTurns},
		{"news comes unasked", newsComesUnasked},
		{"errors are recovered from", errorsAreRecoveredFrom},
		{"values may be large", valuesMayBeLarge},
		{"a pool reuses", aPoolReuses},
	} {
		connection, err := pgx.Connect(ctx, where)
		check(err)
		promise.keep(ctx, connection)
		check(connection.Close(ctx))
		fmt.Println(promise.name)
	}
}
