import assert from "node:assert/strict";
import { test } from "node:test";
import pg from "pg";

// Registers the tests; `open` makes a database for each of them, and `close` gets what `open` returned.
export function orders(open, close) {
  for (let number = 0; number < 30; number++) {
    test(`the first order is number 1 (${number})`, async (t) => {
      const database = await open(t);
      const client = new pg.Client(database.url);
      await client.connect();
      const customers = await client.query(
        "INSERT INTO customers (name, email) VALUES ('Ada', 'ada@example.org') RETURNING id",
      );
      await client.query("INSERT INTO orders (customer, cents) VALUES ($1, $2)", [customers.rows[0].id, number]);
      const { rows } = await client.query("SELECT id::int, cents FROM orders");
      assert.deepEqual(rows, [{ id: 1, cents: number }]);
      await client.end();
      await close?.(database);
    });
  }
}
