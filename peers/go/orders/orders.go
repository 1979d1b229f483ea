// Package orders has the tests, which all tools run.
package orders

import (
	"database/sql"
	"strconv"
	"testing"
)

// Run runs the tests in parallel, each on a database that open returns.
func Run(t *testing.T, open func(testing.TB) *sql.DB) {
	for number := range 30 {
		t.Run(strconv.Itoa(number), func(t *testing.T) {
			t.Parallel()
			db := open(t)
			var customer, id, cents int
			insert := "INSERT INTO customers (name, email) VALUES ('Ada', 'ada@example.org') RETURNING id"
			if err := db.QueryRow(insert).Scan(&customer); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec("INSERT INTO orders (customer, cents) VALUES ($1, $2)", customer, number); err != nil {
				t.Fatal(err)
			}
			if err := db.QueryRow("SELECT id, cents FROM orders").Scan(&id, &cents); err != nil {
				t.Fatal(err)
			}
			if id != 1 || cents != number {
				t.Fatalf("order %d of %d cents", id, cents)
			}
		})
	}
}
