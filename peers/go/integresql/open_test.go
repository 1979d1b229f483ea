package integresql

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"

	integresql "github.com/allaboutapps/integresql-client-go"
	"github.com/allaboutapps/integresql-client-go/pkg/util"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var template = sync.OnceValues(func() (string, error) {
	client, err := integresql.DefaultClientFromEnv()
	if err != nil {
		return "", err
	}
	hash, err := util.GetTemplateHash("../../schema")
	if err != nil {
		return "", err
	}
	return hash, client.SetupTemplateWithDBClient(context.Background(), hash, func(db *sql.DB) error {
		schema, err := os.ReadFile("../../schema/00001_shop.sql")
		if err != nil {
			return err
		}
		_, err = db.Exec(string(schema))
		return err
	})
})

func open(tb testing.TB) *sql.DB {
	hash, err := template()
	if err != nil {
		tb.Fatal(err)
	}
	client, err := integresql.DefaultClientFromEnv()
	if err != nil {
		tb.Fatal(err)
	}
	database, err := client.GetTestDatabase(context.Background(), hash)
	if err != nil {
		tb.Fatal(err)
	}
	db, err := sql.Open("pgx", database.Config.ConnectionString())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}
