// Tests the helper for Playwright, in separate Playwright runs without a browser.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { keeping } from "./counterpart.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));

// Runs a file. Resolves to the exit code and the output.
async function run(t, file, ...options) {
  const output = await mkdtemp(join(tmpdir(), "pgfresh-playwright-"));
  t.after(() => rm(output, { recursive: true }));
  const command = ["node_modules/@playwright/test/cli.js", "test", "--config=test/playwright", file, ...options];
  const env = { ...process.env, OUTPUT: join(output, "results"), NO_COLOR: "1", PLAYWRIGHT_FORCE_TTY: "0" };
  delete env.NODE_TEST_CONTEXT;
  const child = spawn(process.execPath, command, { cwd: root, env });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (part) => (text += part));
  const code = await new Promise((resolve) => child.on("close", resolve));
  return { code, text };
}

test("a worker's database is reset for each test", { timeout: 600_000 }, async (t) => {
  const { code, text } = await run(t, "isolated", "--workers=2");
  assert.equal(code, 0, text);
  assert.match(text, /6 passed/);
});

test("failed tests are reported to pgfresh", { timeout: 600_000 }, async (t) => {
  const server = await keeping();
  t.after(server.close);
  const control = process.env.PGFRESH_CONTROL;
  process.env.PGFRESH_CONTROL = server.control;
  const { code, text } = await run(t, "failing", "--workers=1");
  if (control === undefined) delete process.env.PGFRESH_CONTROL;
  else process.env.PGFRESH_CONTROL = control;
  assert.equal(code, 1, text);
  assert.match(text, /1 failed\n[^]*1 skipped\n +2 passed/);

  const requests = server.requests.map(({ method, path, body }) => [method, decodeURIComponent(path), body]);
  const path = "/v1/databases/fresh_";
  assert.deepEqual(requests, [
    ["POST", "/v1/databases", { template: "shop" }],
    ["POST", `${path}1/reset`, { close_sessions: true }],
    ["POST", `${path}1/reset`, { close_sessions: true, test: "failing.spec.js > passes" }],
    ["DELETE", `${path}1?failed=true&test=failing.spec.js > in a group > fails`, undefined],
    ["POST", "/v1/databases", { template: "shop" }],
    ["POST", `${path}2/reset`, { close_sessions: true }],
    ["POST", `${path}2/reset`, { close_sessions: true, test: "failing.spec.js > fails as expected" }],
    ["DELETE", `${path}2?test=failing.spec.js > is skipped`, undefined],
  ]);
  assert.match(text, /pgfresh: kept the database of the failed test: kept\/fresh_1/);
});

test("an exceeded budget fails the test", { timeout: 600_000 }, async (t) => {
  const { code, text } = await run(t, "budgets", "--workers=1");
  assert.equal(code, 1, text);
  assert.match(text, /2 failed\n[^]*3 passed/, text);
  assert.match(text, /budget exceeded: 8 statements, 7 allowed; one query ran 7 times with different values, 6 allowed\n +7 × SELECT/);
  assert.match(text, /budget exceeded: 10 statements, 7 allowed/);
  assert.equal(new Set(text.match(/kept the database of the failed test: postgresql:.*/g)).size, 2, text);
});

test("a fault that never fires fails the test", { timeout: 600_000 }, async (t) => {
  const { code, text } = await run(t, "faults", "--workers=1");
  assert.equal(code, 1, text);
  assert.match(text, /3 failed\n[^]*1 skipped\n +3 passed/, text);
  assert.match(text, /fault did not fire: delay of 2000 ms before statement "UPDATE" \(no matching statement\)/);
  // A fault that was requested with SQL fails the next test, because that test resets the database.
  assert.match(text, /fault did not fire: 57014 before statement "never"/);
  assert.equal(new Set(text.match(/kept the database of the failed test: postgresql:.*/g)).size, 2, text);
});
