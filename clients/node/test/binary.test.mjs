// Tests which binary runs if the first pgfresh on PATH is the package's `bin/pgfresh.js`, as with npm and npx.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const { installHint } = createRequire(import.meta.url)("../src/binary.js");
const shim = fileURLToPath(new URL("../bin/pgfresh.js", import.meta.url));
const index = fileURLToPath(new URL("../src/index.js", import.meta.url));

// Creates folders for PATH: one with the shim, and one with a pgfresh that prints its arguments.
function folders(t) {
  const folder = mkdtempSync(path.join(tmpdir(), "pgfresh-path-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [shims, real] = ["shims", "real"].map((name) => path.join(folder, name));
  for (const path of [shims, real]) mkdirSync(path);
  symlinkSync(shim, path.join(shims, "pgfresh"));
  // The shim's `#!/usr/bin/env node` finds Node through this link.
  symlinkSync(process.execPath, path.join(shims, "node"));
  const program = path.join(real, "pgfresh");
  writeFileSync(program, '#!/bin/sh\necho "pgfresh: the real one, with $*" >&2\nexit 9\n');
  chmodSync(program, 0o755);
  return { shims, real };
}

function run(command, folders) {
  const env = { ...process.env, PATH: folders.join(path.delimiter) };
  for (const name of Object.keys(env)) if (name.startsWith("PGFRESH_")) delete env[name];
  return spawnSync(process.execPath, command, { env, encoding: "utf8" });
}

test("the command runs the next pgfresh on PATH", (t) => {
  const { shims, real } = folders(t);
  const { status, stderr } = run([shim, "--version"], [shims, real]);
  assert.deepEqual([status, stderr], [9, "pgfresh: the real one, with --version\n"]);
});

test("the command reports a missing binary", (t) => {
  const { shims } = folders(t);
  const { status, stderr } = run([shim, "--version"], [shims]);
  assert.equal(status, 127);
  assert.match(stderr, /^pgfresh: cannot find "pgfresh": neither the package @pgfresh\/.* nor PATH has it\nHINT: {2}Run "make install"/);
});

test("the client runs the next pgfresh on PATH", (t) => {
  const { shims, real } = folders(t);
  const { stderr } = run(["-e", `require(${JSON.stringify(index)}).freshDatabase()`], [shims, real]);
  assert.match(stderr, /pgfresh: the real one, with serve --shared --json/);
});

test("the hint for a missing binary depends on the platform", () => {
  assert.match(installHint("linux"), /^Run "make install" in a checkout/);
  assert.match(installHint("darwin"), /^Run "cargo install --locked --path crates\/pgfresh" in a checkout/);
  assert.match(installHint("win32"), /^pgfresh runs on Linux and macOS, not on win32\. Run the tests in WSL 2/);
});
