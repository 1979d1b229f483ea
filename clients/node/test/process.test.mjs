// Tests that each process starts the binary once, and that the binary ends with the process.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const BEGIN = `
  const { freshDatabase } = require("./src/index.js");
  (async () => {
    const database = await freshDatabase();`;

// Runs a Node program in a new session, and resolves once it has leased a database. The binary inherits standard
// error, so the pipe closes only after the binary has ended, too.
async function start(program) {
  const child = spawn(process.execPath, ["-e", `${BEGIN} ${program}; console.log("ready"); })()`], { cwd: root, detached: true });
  const output = { out: "", error: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => (output.out += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (output.error += text));
  const gone = Promise.all([once(child, "close"), once(child.stderr, "close")]);
  await once(child.stdout, "data");
  return { child, output, gone: gone.then(([[code, signal]]) => ({ code, signal })) };
}

const timeout = 60_000;

test("a process ends by itself and prints nothing", { timeout }, async () => {
  const { output, gone } = await start("await database.release()");
  assert.deepEqual(await gone, { code: 0, signal: null });
  assert.deepEqual(output, { out: "ready\n", error: "" });
});

for (const signal of ["SIGTERM", "SIGKILL"]) {
  test(`the binary ends with its process after ${signal}`, { timeout }, async () => {
    const { child, gone } = await start("process.stdin.resume()");
    child.kill(signal);
    assert.deepEqual(await gone, { code: null, signal });
  });
}

test("cleanup after Ctrl-C reaches the server", { timeout }, async () => {
  const program = `
    process.stdin.resume();
    process.once("SIGINT", async () => {
      await database.release();
      await (await freshDatabase()).release();
      process.exit(7);
    });`;
  const { child, gone } = await start(program);
  process.kill(-child.pid, "SIGINT");
  assert.deepEqual(await gone, { code: 7, signal: null });
});

test("concurrent leases share one server", { timeout }, async () => {
  const program = `
    const databases = await Promise.all(Array.from({ length: 8 }, () => freshDatabase()));
    console.log("servers:", new Set([database, ...databases].map(({ url }) => new URL(url).port)).size);`;
  const { output, gone } = await start(program);
  await gone;
  assert.equal(output.out, "servers: 1\nready\n");
});
