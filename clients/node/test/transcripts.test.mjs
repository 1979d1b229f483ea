// Plays the transcripts in `../../transcripts`, which all clients follow.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";

import { counterpart } from "./counterpart.mjs";

const transcripts = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../../transcripts");
const require = createRequire(import.meta.url);

// Loads the client again, like a new process.
function newClient() {
  for (const module of ["../src/index.js", "../src/server.js"]) delete require.cache[require.resolve(module)];
  return require("../src/index.js");
}

function camelCase(options = {}) {
  const rename = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [rename(name), value]));
}

// Executes a step, and returns the database that it leased or used.
async function act(client, { do: what, with: options, answer }, database) {
  if (what === "lease") return client.freshDatabase(camelCase(options));
  if (what === "reset") await database.reset(camelCase(options));
  if (what === "fault") await requestFault(database, options);
  if (what === "faults") assert.deepEqual(await database.faults(), (answer.body.faults ?? []).map(described));
  if (what === "lag") await database.setReplicaLag(options.lag);
  if (what === "promote") await database.promoteReplica();
  if (what === "check") await database.checkFaults();
  if (what === "release") client.reportKept(await database.release(options));
  return database;
}

function requestFault(database, { error, connection, ...options }) {
  const what = connection ? `connection ${connection}` : error;
  return what ? database.fault(what, camelCase(options)) : database.fault(camelCase(options));
}

// Converts a fault in a response to the client's format.
function described({ number, fault, ...others }) {
  assert.ok(number > 0);
  return { text: fault, ...others };
}

function checkError(error, expected) {
  if (expected.begins) {
    assert.ok(error.message.startsWith(expected.begins), error.message);
    assert.ok(error.message.endsWith(expected.ends ?? ""), error.message);
  }
  else assert.equal(error.message, expected.text);
  if (expected.message) {
    assert.equal(error.primary, expected.message);
    for (const part of ["code", "detail", "hint", "remedy"]) assert.equal(error[part], expected[part]);
  }
}

for (const file of readdirSync(transcripts).filter((name) => name.endsWith(".json"))) {
  test(path.basename(file, ".json"), async (t) => {
    let answer;
    const server = await counterpart(() => answer);
    t.after(() => server.close());
    const text = readFileSync(path.join(transcripts, file), "utf8");
    const { environment, start, steps, spawned } = JSON.parse(text.replaceAll("{port}", server.port));

    const directory = mkdtempSync(path.join(tmpdir(), "pgfresh-node-"));
    t.after(() => rmSync(directory, { recursive: true }));
    const log = path.join(directory, "log");
    writeFileSync(log, "");
    for (const name of Object.keys(process.env)) if (name.startsWith("PGFRESH_")) delete process.env[name];
    Object.assign(process.env, {
      PGFRESH_BIN: path.join(transcripts, "pgfresh"),
      FAKE_LOG: log,
      FAKE_LINE: JSON.stringify(start?.line ?? null),
      FAKE_EXIT: start?.exit ?? "",
      ...environment,
    });

    const client = newClient();
    const printed = t.mock.method(console, "error", () => {});
    let database;
    for (const step of steps) {
      server.requests.length = 0;
      printed.mock.resetCalls();
      answer = step.answer;
      try {
        database = await act(client, step, database);
        assert.ok(!step.raises, "an error was expected");
      } catch (error) {
        if (!(error instanceof client.PgfreshError)) throw error;
        checkError(error, step.raises);
      }
      assert.deepEqual(server.requests, step.request ? [step.request] : []);
      assert.deepEqual(printed.mock.calls.map((call) => call.arguments), step.prints ? [[step.prints]] : []);
      if (step.do === "lease" && !step.raises) assert.deepEqual({ ...database }, camelCase(step.answer.body));
    }
    const starts = readFileSync(log, "utf8").split("\n").filter((line) => line.startsWith("started"));
    assert.equal(starts.length, spawned);
    if (start?.arguments) assert.deepEqual(starts, [["started", ...start.arguments].join(" ")]);
  });
}
