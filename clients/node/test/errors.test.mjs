// Tests error messages.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";

import { counterpart, keeping } from "./counterpart.mjs";

const standIn = fileURLToPath(new URL("../../transcripts/pgfresh", import.meta.url));
const require = createRequire(import.meta.url);

// Loads the client again with the environment variables `environment`, like a new process.
function newClient(environment) {
  for (const name of Object.keys(process.env)) if (name.startsWith("PGFRESH_")) delete process.env[name];
  Object.assign(process.env, environment);
  for (const module of ["../src/index.js", "../src/server.js"]) delete require.cache[require.resolve(module)];
  return require("../src/index.js");
}

test("a failed start is not repeated", async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "pgfresh-errors-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const log = path.join(folder, "log");
  const error = { message: 'template "app" is incomplete', detail: "The step printed nothing.", hint: "Look." };
  const client = newClient({ PGFRESH_BIN: standIn, FAKE_LOG: log, FAKE_EXIT: "1", FAKE_LINE: JSON.stringify({ error }) });
  for (let i = 0; i < 3; i++) {
    const message = 'template "app" is incomplete\nDETAIL:  The step printed nothing.\nHINT:  Look.';
    const { detail, hint } = error;
    await assert.rejects(client.freshDatabase(), { name: "PgfreshError", message, detail, hint });
  }
  assert.equal(readFileSync(log, "utf8"), "started serve --shared --json\n");
});

test("a program that isn't pgfresh ends", { timeout: 60_000 }, async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "pgfresh-errors-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [binary, pid] = [path.join(folder, "other"), path.join(folder, "pid")];
  for (const [line, message] of [["echo garbage", /^could not read what/], ["exec >&-", /^pgfresh was ended by SIGKILL/]]) {
    writeFileSync(binary, `#!/bin/sh\necho $$ >${pid}\n${line}\nexec sleep 60\n`, { mode: 0o755 });
    await assert.rejects(newClient({ PGFRESH_BIN: binary }).freshDatabase(), { message });
    assert.throws(() => process.kill(Number(readFileSync(pid, "utf8")), 0), { code: "ESRCH" });
  }
});

test("unknown options are errors", async (t) => {
  const server = await keeping();
  t.after(server.close);
  const client = newClient({ PGFRESH_CONTROL: server.control });
  const database = await client.freshDatabase();
  const leases = "template, name, isolation, record, budget";
  const limits = "statements, nPlusOne, time";
  const faults = "at, statement, nth, times, delay, bandwidth, duration, readOnly";
  for (const [attempt, message] of [
    [() => client.freshDatabase({ templat: "x" }), `a database has no option "templat"; it has ${leases}`],
    [() => client.freshDatabase("shop"), "the options of a database are not an object"],
    [() => client.freshDatabase(null), "the options of a database are not an object"],
    [() => client.freshDatabase({ budget: { n_plus_one: 0 } }), `a budget has no limit "n_plus_one"; it has ${limits}`],
    [() => client.withFreshDatabase({ budget: 5 }, () => {}), "the limits of a budget are not an object"],
    [() => client.withFreshDatabase({}), "withFreshDatabase has no function to run"],
    [() => database.fault("40001", { att: "commit" }), `a fault has no option "att"; it has ${faults}`],
    [() => database.fault({ readonly: "1s" }), `a fault has no option "readonly"; it has ${faults}`],
    [() => database.reset({ close_sessions: true }), 'a reset has no option "close_sessions"; it has closeSessions'],
    [() => database.release({ fail: true }), 'a release has no option "fail"; it has failed, test'],
  ]) {
    await assert.rejects(attempt, { name: "PgfreshError", message });
  }
  assert.equal(server.requests.length, 1);
});

test("a refused release keeps the test's error", async (t) => {
  const server = await counterpart(({ method }) =>
    method === "POST"
      ? { status: 201, body: { name: "a", url: "u", jdbc_url: "j", socket_url: "s", template: "t" } }
      : { status: 409, body: { error: { message: "no" } } },
  );
  t.after(server.close);
  const printed = t.mock.method(console, "error", () => {});
  const client = newClient({ PGFRESH_CONTROL: server.control });
  const failing = client.withFreshDatabase(() => {
    throw new Error("of the test");
  });
  await assert.rejects(failing, { message: "of the test" });
  assert.deepEqual(printed.mock.calls.map((call) => call.arguments), [["pgfresh: no"]]);
});

test("node:test needs the context of a test", async () => {
  const { freshDatabase } = require("../src/node-test.js");
  const message = "freshDatabase has no test that uses the database\nHINT:  Pass it the context of a test: freshDatabase(t).";
  for (const context of [undefined, {}, { name: "a suite" }]) await assert.rejects(freshDatabase(context), { message });
});

test("an uncaught error prints no properties", async () => {
  const client = newClient({ PGFRESH_BIN: "/no/such/pgfresh" });
  const error = await client.freshDatabase().catch((error) => error);
  const { cause } = error;
  assert.equal(cause.code, "ENOENT");
  assert.equal(inspect(new client.PgfreshError("no room", { code: "53400", hint: "Wait." })).split("\n    at")[0], "PgfreshError: no room\nHINT:  Wait.");
  assert.doesNotMatch(inspect(error), /primary|hint:/);
});

test("a server can have an IPv6 address", async (t) => {
  const server = await counterpart(() => ({ status: 409, body: { error: { message: "no" } } }), "::1");
  t.after(server.close);
  await assert.rejects(newClient({ PGFRESH_CONTROL: server.control }).freshDatabase(), { message: "no" });
});

for (const [remedy, hint] of [
  ["close_sessions", "Close them first, or call reset({ closeSessions: true })."],
  ["record", "Lease it with { record: true }, or a budget."],
  ["make_room", "Whatever the server says."],
  [undefined, "Whatever the server says."],
]) {
  test(`the hint names options of the client for remedy ${remedy}`, async (t) => {
    const error = { code: "55006", message: "no", hint: "Whatever the server says.", remedy };
    const server = await counterpart(() => ({ status: 409, body: { error } }));
    t.after(server.close);
    const client = newClient({ PGFRESH_CONTROL: server.control });
    await assert.rejects(client.freshDatabase(), { hint, remedy });
  });
}
