import knex from "knex";
import { freshDatabase } from "pgfresh/node-test";

// The migrated database of a test, and the pool that is closed after it.
export async function open(t, wish) {
  return connect(t, await freshDatabase(t, wish));
}

export function connect(t, { url }) {
  const db = knex({ client: "pg", connection: url });
  t.after(() => db.destroy());
  return db;
}
