// Tests error messages.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";

import { counterpart } from "./counterpart.mjs";

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
