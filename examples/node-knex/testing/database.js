import knex from "knex";
import { freshDatabase } from "pgfresh/node-test";

// Provides the migrated database of a test, and a pool that is closed after the test.
export async function open(t, wish) {
  return connect(t, await freshDatabase(t, wish));
}

export function connect(t, { url }) {
  const db = knex({ client: "pg", connection: url });
  t.after(() => db.destroy());
  return db;
}
