// Command library runs a small lending library: "library migrate" migrates the database that DATABASE_URL names, and
// "library serve" listens on port 8080.
package main

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"example/library/web"
)

//go:embed migrations/*.sql
var migrations embed.FS

func main() {
	log.SetFlags(0)
	var err error
	switch ctx := context.Background(); {
	case len(os.Args) != 2:
		err = errors.New("usage: library migrate|serve")
	case os.Args[1] == "migrate":
		err = migrate(ctx, os.Getenv("DATABASE_URL"))
	case os.Args[1] == "serve":
		err = serve(ctx, os.Getenv("DATABASE_URL"))
	default:
		err = errors.New("usage: library migrate|serve")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func migrate(ctx context.Context, url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func serve(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return http.ListenAndServe("127.0.0.1:8080", web.Handler(pool))
}
