// The program behind: started once, undisturbed, and gone with the process that needed it.

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

// Node, running a program that has a database and says so, in a session of its own. pgfresh shares its standard error: that ends with the
// last of the processes.
async function start(program) {
  const child = spawn(process.execPath, ["-e", `${BEGIN} ${program}; console.log("ready"); })()`], { cwd: root, detached: true });
  const said = { out: "", error: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => (said.out += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (said.error += text));
  const gone = Promise.all([once(child, "close"), once(child.stderr, "close")]);
  await once(child.stdout, "data");
  return { child, said, gone: gone.then(([[code, signal]]) => ({ code, signal })) };
}

const timeout = 60_000;

test("nothing keeps a process from ending, and nothing is said", { timeout }, async () => {
  const { said, gone } = await start("await database.release()");
  assert.deepEqual(await gone, { code: 0, signal: null });
  assert.deepEqual(said, { out: "ready\n", error: "" });
});

for (const signal of ["SIGTERM", "SIGKILL"]) {
  test(`it ends with its process after ${signal}`, { timeout }, async () => {
    const { child, gone } = await start("process.stdin.resume()");
    child.kill(signal);
    assert.deepEqual(await gone, { code: null, signal });
  });
}

test("Ctrl-C leaves it to those who clean up", { timeout }, async () => {
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

test("those who ask at once share one", { timeout }, async () => {
  const program = `
    const databases = await Promise.all(Array.from({ length: 8 }, () => freshDatabase()));
    console.log("servers:", new Set([database, ...databases].map(({ url }) => new URL(url).port)).size);`;
  const { said, gone } = await start(program);
  await gone;
  assert.equal(said.out, "servers: 1\nready\n");
});
