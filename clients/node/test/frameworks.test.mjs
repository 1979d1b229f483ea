// The helpers for test frameworks, in runs of their own.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { keeping } from "./counterpart.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const frameworks = {
  jest: ["node_modules/jest/bin/jest.js", "--config=test/jest/jest.config.js"],
  vitest: ["node_modules/vitest/vitest.mjs", "run", "--root=test/vitest"],
  "node:test": ["--test"],
};

// The names of the tests that fail in their files of that name, as the framework shows them.
const failing = {
  jest: ["fails", "with a hook fails before it begins"],
  vitest: ["failing.test.mjs > fails", "failing.test.mjs > with a hook > fails before it begins"],
  "node:test": ["fails", "fails after its database"],
};

// Runs the framework on its files of that name; resolves to its exit code and what it has written.
async function run(framework, name, environment) {
  const suffix = framework === "jest" ? "js" : "mjs";
  const folder = framework === "node:test" ? "test/node-test/" : "";
  const files = { isolated: ["isolated", "isolated-too"], failing: ["failing"], built: ["built"] }[name];
  const command = [...frameworks[framework], ...files.map((file) => `${folder}${file}.test.${suffix}`)];
  const env = { ...process.env, CI: "true", NO_COLOR: "1", ...environment };
  // With these set, a node --test of ours would take itself for one of our files.
  delete env.NODE_TEST_CONTEXT;
  const child = spawn(process.execPath, command, { cwd: root, env });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (part) => (text += part));
  }
  const code = await new Promise((resolve) => child.on("close", resolve));
  return { code, text };
}

for (const framework of Object.keys(frameworks)) {
  test(`${framework}: each test has a database`, { timeout: 120_000 }, async () => {
    const { code, text } = await run(framework, "isolated");
    assert.equal(code, 0, text);
    assert.match(text, /(Tests +8 passed|Tests: +8 passed|pass 8)/);
  });

  test(`${framework}: the databases of failed tests are released as such`, { timeout: 120_000 }, async (t) => {
    const server = await keeping();
    t.after(server.close);
    const { code, text } = await run(framework, "failing", { PGFRESH_CONTROL: server.control });
    assert.notEqual(code, 0, text);

    const leased = server.asked.filter(({ method }) => method === "POST");
    assert.deepEqual(leased.map(({ body }) => body), Array(4).fill({ template: "shop" }), text);
    const released = server.asked.filter(({ method }) => method === "DELETE").map(({ path }) => path);
    const tests = released.map((path) => path.split("?failed=true&test=")[1]);
    assert.deepEqual(tests.map((test) => test && decodeURIComponent(test)), [undefined, ...failing[framework], undefined], text);
    assert.match(text, /pgfresh: kept the database of the failed test: kept\/fresh_2/);
    assert.match(text, /pgfresh: kept the database of the failed test: kept\/fresh_3/);
  });
}

// A runner that limits the time of a test must not find the template unbuilt within the first one.
for (const framework of ["jest", "vitest"]) {
  test(`${framework}: the global setup builds the template before a test file is loaded`, { timeout: 120_000 }, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "pgfresh-built-"));
    t.after(() => rm(folder, { recursive: true }));
    // Its path is in the setup, so that no background server of another framework has that template.
    const built = join(folder, "built");
    const { code, text } = await run(framework, "built", { PGFRESH_SETUP: `touch "${built}"`, BUILT: built, PGFRESH_IDLE: "1s" });
    assert.equal(code, 0, text);
    assert.match(text, /(Tests +1 passed|Tests: +1 passed)/);
  });
}
