// Command tools runs the files in the folder "migrations" with goose or golang-migrate: "tools goose|golang-migrate".
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

func main() {
	log.SetFlags(0)
	url := os.Getenv("DATABASE_URL")
	var err error
	switch tool := strings.Join(os.Args[1:], " "); tool {
	case "goose":
		err = runGoose(url)
	case "golang-migrate":
		err = runGolangMigrate(url)
	default:
		err = fmt.Errorf("there is no tool %q", tool)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func runGoose(url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("migrations"))
	if err != nil {
		return err
	}
	_, err = provider.Up(context.Background())
	return err
}

func runGolangMigrate(url string) error {
	migrations, err := migrate.New("file://migrations", strings.Replace(url, "postgresql://", "pgx5://", 1))
	if err != nil {
		return err
	}
	defer migrations.Close()
	return migrations.Up()
}
