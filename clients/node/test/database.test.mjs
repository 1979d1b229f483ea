// Tests leases, resets, releases and counts on a real server.

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

test("a reset removes tables", async (t) => {
  const database = await freshDatabase(t);
  assert.equal(await query(database.url, "SELECT current_database()"), database.name);
  await query(database.url, "CREATE TABLE t ()");
  await database.reset();
  assert.equal(await query(database.url, "SELECT to_regclass('t')"), null);
});

test("a reset rejects or closes open sessions", async (t) => {
  const database = await freshDatabase(t);
  const client = new pg.Client(database.url);
  const closed = new Promise((resolve) => client.on("error", resolve));
  await client.connect();
  await assert.rejects(database.reset(), (error) => error instanceof PgfreshError && error.code === "55006");
  await database.reset({ closeSessions: true });
  await closed;
});

test("a name accepts any characters", async () => {
  const name = 'a b/ü?"%';
  const database = await lease({ name });
  assert.equal(database.name, name);
  assert.equal(decodeURIComponent(new URL(database.url).pathname), `/${name}`);
  await database.reset();
  await database.release();
});

test("a release removes the database", async () => {
  const database = await lease({ name: "gone" });
  await query(database.url, "CREATE TABLE t ()");
  await database.release();
  await assert.rejects(database.reset(), /is not leased/);
  const again = await lease({ name: "gone" });
  assert.equal(await query(again.url, "SELECT to_regclass('t')"), null);
  await again.release();
});

test("a second release does nothing", async () => {
  const first = await lease({ name: "orders" });
  await first.release();
  await withFreshDatabase({ name: "orders", budget: { statements: 5 } }, async (second) => {
    assert.equal(await first.release(), undefined);
    await second.reset();
    await second.release();
  });
});

test("withFreshDatabase returns the result and releases", async (t) => {
  const database = await withFreshDatabase((database) => database);
  await assert.rejects(database.reset(), /is not leased/);

  // The background server keeps the database of a failed test.
  const printed = t.mock.method(console, "error", () => {});
  let url;
  const failing = withFreshDatabase((database) => query((url = database.url), "SELECT 1 / 0"));
  await assert.rejects(failing, /division by zero/);
  // pgfresh renames a kept database, so that the next lease can use its name.
  const line = `pgfresh: kept the database of the failed test: ${url}_failed_`;
  const calls = printed.mock.calls.map((call) => call.arguments);
  assert.equal(calls.length, 1);
  assert.match(calls[0].join(), /_failed_\d+$/);
  assert.equal(calls[0].join().replace(/\d+$/, ""), line);
});

test("a refused lease has the server's error", async () => {
  await assert.rejects(lease({ template: "shpo" }), {
    name: "PgfreshError",
    primary: 'template "shpo" does not exist',
    message: /^template "shpo" does not exist\nDETAIL: {2}This server has /,
    code: "3D000",
  });
});

test("ES modules and CommonJS share one instance", () => {
  const required = createRequire(import.meta.url)("pgfresh");
  assert.equal(required.Database, Database);
});

test("a block counts its statements", async () => {
  await withFreshDatabase({ record: true }, async (database) => {
    assert.ok(database.recorded);
    const client = new pg.Client(database.url);
    await client.connect();
    await client.query("SELECT 1");
    const seen = await database.statements(async () => {
      await client.query("SELECT 2");
      for (let time = 0; time < 2; time++) await client.query("VALUES (1), (2)");
    });
    await client.query("SELECT 3");
    await client.end();
    assert.equal(seen.count, 3);
    assert.ok(seen.complete);
    const lines = seen.mostFrequent.map(({ text, count, rows }) => [text, count, rows]);
    assert.deepEqual(lines, [["VALUES (?), …", 2, 4], ["SELECT ?", 1, 1]]);
    assert.equal(`${seen}`, "3 statements: 2x VALUES (?), …, 1x SELECT ?");
    const seconds = seen.mostFrequent.reduce((sum, { seconds }) => sum + seconds, 0);
    assert.ok(Math.abs(seen.seconds - seconds) < 1e-6 && seconds > 0, `${seen.seconds}, ${seconds}`);

    const none = await database.statements(() => {});
    assert.deepEqual([none.count, none.mostFrequent], [0, []]);
    const over = await database.statements(async () => {
      await database.reset();
      await query(database.url, "SELECT 4");
    });
    assert.deepEqual([over.count, over.complete], [1, false]);
    await assert.rejects(database.statements(() => Promise.reject(new Error("in the block"))), /in the block/);
  });
});

test("counting requires recording", async (t) => {
  const database = await freshDatabase(t);
  assert.equal(database.recorded, false);
  await assert.rejects(database.statements(() => {}), (error) => error instanceof PgfreshError && /are not recorded/.test(error.message));
  await database.checkBudget();
});

test("withFreshDatabase rejects an exceeded budget", async (t) => {
  const printed = t.mock.method(console, "error", () => {});
  const budget = { statements: 1, nPlusOne: 0, time: 600_000 };
  assert.equal(await withFreshDatabase({ budget }, ({ url }) => query(url, "SELECT 1")), 1);
  assert.equal(printed.mock.callCount(), 0);
  const beyond = withFreshDatabase({ budget }, async ({ url }) => {
    await query(url, "SELECT 1");
    await query(url, "SELECT 2");
  });
  await assert.rejects(beyond, { message: "budget exceeded: 2 statements, 1 allowed\n      2 × SELECT ?" });
  assert.match(printed.mock.calls[0].arguments[0], /^pgfresh: kept the database of the failed test: /);

  const wrong = withFreshDatabase({ budget: { time: "soon" } }, () => {});
  await assert.rejects(wrong, { primary: 'invalid value for "time": "soon"' });
});
