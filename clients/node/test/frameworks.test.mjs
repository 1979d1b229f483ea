// Tests the helpers for test frameworks, in separate runs of each framework.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { keeping } from "./counterpart.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const standIn = fileURLToPath(new URL("../../transcripts/pgfresh", import.meta.url));
const frameworks = {
  jest: ["node_modules/jest/bin/jest.js", "--config=test/jest/jest.config.js"],
  vitest: ["node_modules/vitest/vitest.mjs", "run", "--root=test/vitest"],
  "node:test": ["--test"],
};

// Names of the failed tests in the files `failing`, in the format of each framework.
const failing = {
  jest: ["test/jest/failing.test.js > fails", "test/jest/failing.test.js > with a hook fails before it begins"],
  vitest: ["failing.test.mjs > fails", "failing.test.mjs > with a hook > fails before it begins"],
  "node:test": ["test/node-test/failing.test.mjs > fails", "test/node-test/failing.test.mjs > fails after its database"],
};

const [major, minor] = process.versions.node.split(".").map(Number);
const runsAddedHooks = major >= 24 || (major === 22 && minor >= 13) || (major === 20 && minor >= 19);
// In Node 18, a node:test hook can't determine whether its test has failed.
const reportsFailures = (framework) => framework !== "node:test" || major >= 20;

// Runs the framework on its files called `name`. Resolves to the exit code and the output.
async function run(framework, name, environment, ...around) {
  const suffix = framework === "jest" ? "js" : "mjs";
  const folder = framework === "node:test" ? "test/node-test/" : "";
  const files = { isolated: ["isolated", "isolated-too"], failing: ["failing"], built: ["built"], budgets: ["budgets"], faults: ["faults"], ending: ["ending"], alone: ["alone", "alone-too"], concurrent: ["concurrent"] }[name];
  const paths = files.map((file) => `${folder}${file}.test.${suffix}`);
  const [program, ...command] = [...around, process.execPath, ...frameworks[framework], ...paths];
  const env = { ...process.env, CI: "true", NO_COLOR: "1", ...environment };
  // With this variable, `node --test` would run as a child of this test runner.
  delete env.NODE_TEST_CONTEXT;
  const child = spawn(program, command, { cwd: root, env });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (part) => (text += part));
  }
  const code = await new Promise((resolve) => child.on("close", resolve));
  return { code, text };
}

for (const framework of Object.keys(frameworks)) {
  test(`${framework}: each test has another database`, { timeout: 120_000 }, async () => {
    const { code, text } = await run(framework, "isolated");
    assert.equal(code, 0, text);
    assert.match(text, /(Tests +8 passed|Tests: +8 passed|pass 8)/);
  });

  test(`${framework}: hooks can end connections before the release`, { timeout: 120_000, skip: framework === "node:test" && !runsAddedHooks }, async () => {
    const { code, text } = await run(framework, "ending");
    assert.equal(code, 0, text);
    assert.match(text, /(Tests +2 passed|Tests: +2 passed|pass 2)/);
  });

  test(`${framework}: failed tests are reported to pgfresh`, { timeout: 120_000 }, async (t) => {
    const server = await keeping();
    t.after(server.close);
    const { code, text } = await run(framework, "failing", { PGFRESH_CONTROL: server.control });
    assert.notEqual(code, 0, text);

    const leased = server.requests.filter(({ method }) => method === "POST");
    assert.deepEqual(leased.map(({ body }) => body), Array(4).fill({ template: "shop" }), text);
    const released = server.requests.filter(({ method }) => method === "DELETE").map(({ path }) => path);
    const tests = released.map((path) => path.split("?failed=true&test=")[1]);
    const names = failing[framework].map((name) => (reportsFailures(framework) ? name : undefined));
    assert.deepEqual(tests.map((test) => test && decodeURIComponent(test)), [undefined, ...names, undefined], text);
    if (!reportsFailures(framework)) return;
    assert.match(text, /pgfresh: kept the database of the failed test: kept\/fresh_2/);
    assert.match(text, /pgfresh: kept the database of the failed test: kept\/fresh_3/);
  });

  test(`${framework}: an exceeded budget lists the statements`, { timeout: 120_000 }, async () => {
    const { code, text } = await run(framework, "budgets");
    assert.notEqual(code, 0, text);
    assert.match(text, /(Tests +4 failed \| 4 passed \| 1 skipped|Tests: +4 failed, 4 passed|pass 4\n.*fail 4\n)/, text);
    const exceeded = new Set(text.match(/budget exceeded: .*/g).map((line) => line.replace(/: [0-9.]+ ms in/, ": … ms in").replace(/['"`]$/, "")));
    assert.deepEqual(exceeded, new Set([
      "budget exceeded: 8 statements, 7 allowed; one query ran 7 times with different values, 6 allowed",
      "budget exceeded: 10 statements, 7 allowed; one query ran 8 times with different values, 6 allowed",
      "budget exceeded: … ms in the database, 0.0 ms allowed",
    ]), text);
    assert.match(text, /7 × SELECT \? WHERE \? > \? \(N\+1\)\n +1 × CREATE TABLE t\(\)/);
    assert.match(text, /by itself/);
    // pgfresh keeps the databases of these tests like those of other failed tests.
    assert.equal(new Set(text.match(/kept the database of the failed test: postgresql:.*/g)).size, 4, text);
    if (framework === "node:test" && runsAddedHooks) assert.match(text, /the hooks after it run, too/);
  });

  test(`${framework}: a fault that never fires fails the test`, { timeout: 120_000 }, async () => {
    const { code, text } = await run(framework, "faults");
    assert.notEqual(code, 0, text);
    assert.match(text, /(Tests +4 failed \| 1 passed \| 1 skipped|Tests: +4 failed, 1 passed|pass 1\n.*fail 4\n)/, text);
    const unfired = new Set(text.match(/fault did not fire: [^(]*\(no matching \w+\)/g));
    assert.deepEqual(unfired, new Set([
      'fault did not fire: delay of 2000 ms before statement "UPDATE" (no matching statement)',
      'fault did not fire: 57014 before statement "never" (no matching statement)',
      "fault did not fire: 57P03 at connect (no matching connection)",
    ]), text);
    assert.match(text, /by itself/);
    // The client learns about a fault that was requested with SQL only after the test has ended, so pgfresh doesn't
    // keep the database of this test.
    assert.equal(new Set(text.match(/kept the database of the failed test: postgresql:.*/g)).size, 3, text);
  });

  test(`${framework}: pgfresh.toml has a budget for all tests`, { timeout: 120_000 }, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "pgfresh-budget-"));
    t.after(() => rm(folder, { recursive: true }));
    const file = join(folder, "pgfresh.toml");
    await writeFile(file, "[budget]\nstatements = 7\n");
    const pgfresh = process.env.PGFRESH_BIN || "pgfresh";
    const report = join(folder, "report.json");
    const around = [pgfresh, "run", "--profile", "--report", report, "--"];
    const { code, text } = await run(framework, "budgets", { PGFRESH_CONFIG: file }, ...around);
    assert.notEqual(code, 0, text);
    // The test without a limit exceeds the budget of the file.
    assert.match(text, /(Tests +5 failed|Tests: +5 failed|fail 5\n)/, text);
    assert.match(text, /budget exceeded: 40 statements, 7 allowed\n/);
    // "pgfresh run" doesn't repeat the errors that the tests reported.
    assert.doesNotMatch(text, /a test exceeded its budget/);

    // A reset splits the statements of a test into two parts. Both parts have the name of the test.
    const { tests } = JSON.parse(await readFile(report, "utf8"));
    const divided = tests.filter(({ name }) => name.endsWith("before a reset"));
    assert.deepEqual(divided.map(({ statements }) => statements).sort(), [1, 10], JSON.stringify(tests));
  });
}

test("jest: only tests with hooks have a database", { timeout: 120_000 }, async () => {
  const { code, text } = await run("jest", "concurrent");
  assert.equal(code, 0, text);
  assert.match(text, /Tests: +2 passed/);
});

test("jest: a server ends with its test file", { timeout: 120_000 }, async () => {
  const { code, text } = await run("jest", "alone", { ALONE: "1" });
  assert.equal(code, 0, text);
  assert.match(text, /Tests: +2 passed/);
});

for (const framework of ["jest", "vitest"]) {
  test(`${framework}: an error of the global setup prints once`, { timeout: 120_000 }, async () => {
    const error = { message: "no room", detail: "All is taken.", hint: "Wait." };
    const environment = { PGFRESH_BIN: standIn, FAKE_LOG: "/dev/null", FAKE_EXIT: "1", FAKE_LINE: JSON.stringify({ error }) };
    const { code, text } = await run(framework, "built", { PGFRESH_CONTROL: "", ...environment });
    assert.notEqual(code, 0, text);
    assert.deepEqual(text.match(/All is taken|Wait\./g), ["All is taken", "Wait."], text);
  });
}

// The timeout of the first test must not include the time for the template.
for (const framework of ["jest", "vitest"]) {
  test(`${framework}: the global setup builds the template first`, { timeout: 120_000 }, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "pgfresh-built-"));
    t.after(() => rm(folder, { recursive: true }));
    // The setup command contains the path, so the background servers of other frameworks can't have this template.
    const built = join(folder, "built");
    const { code, text } = await run(framework, "built", { PGFRESH_SETUP: `touch "${built}"`, BUILT: built, PGFRESH_IDLE: "1s" });
    assert.equal(code, 0, text);
    assert.match(text, /(Tests +1 passed|Tests: +1 passed)/);
  });
}
