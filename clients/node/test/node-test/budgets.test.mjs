import assert from "node:assert/strict";
import { test } from "node:test";

import { freshDatabase } from "pgfresh/node-test";

import { booksOf } from "../books.js";

const budget = { statements: 7, nPlusOne: 6, time: "10min" };

test("at its budget", async (t) => booksOf(await freshDatabase(t, { budget }), 6, "CREATE TABLE t ()"));

test("beyond", async (t) => {
  const database = await freshDatabase(t, { budget });
  t.after(() => console.log("the hooks after it run, too"));
  await booksOf(database, 7, "CREATE TABLE t ()");
});

test("fails anyhow", async (t) => {
  await booksOf(await freshDatabase(t, { budget }), 17);
  throw new Error("by itself");
});

test("before a reset", async (t) => {
  const database = await freshDatabase(t, { budget });
  await booksOf(database, 2, "BEGIN; COMMIT");
  await booksOf(database, 6, "SELECT 1");
  await database.reset();
  await booksOf(database, 1);
});

test("slow", async (t) => booksOf(await freshDatabase(t, { budget: { time: 0 } }), 1));

test("does nothing", (t) => freshDatabase(t, { budget: { statements: 0 } }));

test("many", async (t) => {
  const database = await freshDatabase(t);
  await booksOf(database, 40);
  assert.equal(database.recorded, "PGFRESH_CONFIG" in process.env);
});

test("counted", async (t) => {
  const database = await freshDatabase(t, { record: true });
  const statements = await database.statements(() => booksOf(database, 3));
  assert.equal(`${statements}`, "3 statements: 3x SELECT ? WHERE ? > ?");
  // After the reset, the earlier statement runs more often than before it.
  const again = await database.statements(async () => {
    await database.reset();
    await booksOf(database, 4);
  });
  assert.deepEqual([again.count, again.complete], [4, false]);
});
