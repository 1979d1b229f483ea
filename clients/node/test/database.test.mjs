// Databases of a real server.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

import pg from "pg";
import { Database, PgfreshError, freshDatabase as lease, withFreshDatabase } from "pgfresh";
import { freshDatabase } from "pgfresh/node-test";

async function query(url, text) {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return (await client.query({ text, rowMode: "array" })).rows[0]?.[0];
  } finally {
    await client.end();
  }
}

test("a database is ours, and as its template after a reset", async (t) => {
  const database = await freshDatabase(t);
  assert.equal(await query(database.url, "SELECT current_database()"), database.name);
  await query(database.url, "CREATE TABLE t ()");
  await database.reset();
  assert.equal(await query(database.url, "SELECT to_regclass('t')"), null);
});

test("open sessions are an error or closed", async (t) => {
  const database = await freshDatabase(t);
  const client = new pg.Client(database.url);
  const closed = new Promise((resolve) => client.on("error", resolve));
  await client.connect();
  await assert.rejects(database.reset(), (error) => error instanceof PgfreshError && error.code === "55006");
  await database.reset({ closeSessions: true });
  await closed;
});

test("a name may have any characters", async () => {
  const name = 'a b/ü?"%';
  const database = await lease({ name });
  assert.equal(database.name, name);
  assert.equal(decodeURIComponent(new URL(database.url).pathname), `/${name}`);
  await database.reset();
  await database.release();
});

test("after its release it is no more", async () => {
  const database = await lease({ name: "gone" });
  await query(database.url, "CREATE TABLE t ()");
  await database.release();
  await assert.rejects(database.reset(), /is not leased/);
  const again = await lease({ name: "gone" });
  assert.equal(await query(again.url, "SELECT to_regclass('t')"), null);
  await again.release();
});

test("withFreshDatabase gives back what its body gives, and the database", async (t) => {
  const database = await withFreshDatabase((database) => database);
  await assert.rejects(database.reset(), /is not leased/);

  // The background server keeps the database of a failure.
  const told = t.mock.method(console, "error", () => {});
  let url;
  const failing = withFreshDatabase((database) => query((url = database.url), "SELECT 1 / 0"));
  await assert.rejects(failing, /division by zero/);
  // It has another name since, so that its own is free.
  const line = `pgfresh: kept the database of the failed test: ${url}_failed_`;
  const calls = told.mock.calls.map((call) => call.arguments);
  assert.equal(calls.length, 1);
  assert.match(calls[0].join(), /_failed_\d+$/);
  assert.equal(calls[0].join().replace(/\d+$/, ""), line);
});

test("what is refused says why", async () => {
  await assert.rejects(lease({ template: "shpo" }), {
    name: "PgfreshError",
    primary: 'template "shpo" does not exist',
    message: /^template "shpo" does not exist\nDETAIL: {2}This server has /,
    code: "3D000",
  });
});

test("both kinds of modules are one", () => {
  const required = createRequire(import.meta.url)("pgfresh");
  assert.equal(required.Database, Database);
});
