package pgtestdb

import (
	"database/sql"
	"os"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/peterldowns/pgtestdb"
	"github.com/peterldowns/pgtestdb/migrators/goosemigrator"
)

func open(tb testing.TB) *sql.DB {
	return pgtestdb.New(tb, pgtestdb.Config{
		DriverName: "pgx",
		Host:       os.Getenv("PGHOST"),
		Port:       os.Getenv("PGPORT"),
		User:       os.Getenv("PGUSER"),
		Password:   os.Getenv("PGPASSWORD"),
		Options:    "sslmode=disable",
	}, goosemigrator.New("schema", goosemigrator.WithFS(os.DirFS("../.."))))
}
