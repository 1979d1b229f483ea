// Tests watch mode, where one process runs the tests several times.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("watch.mjs", import.meta.url));

for (const framework of ["jest", "vitest"]) {
  test(`${framework}: each run has the current template`, { timeout: 120_000 }, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "pgfresh-watch-"));
    t.after(() => rm(folder, { recursive: true }));
    const [schema, report] = [join(folder, "schema.sql"), join(folder, "report")];
    await writeFile(schema, "CREATE TABLE one()");
    const env = { ...process.env, NO_COLOR: "1", PGFRESH_SQL: schema, PGFRESH_IDLE: "1s", REPORT: report };
    delete env.NODE_TEST_CONTEXT;
    const child = spawn(process.execPath, [program, framework], { cwd: folder, env, signal: t.signal });
    let text = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (part) => (text += part));
    const code = await new Promise((resolve) => child.on("close", resolve));
    assert.equal(code, 0, text);
    assert.equal(await readFile(report, "utf8"), "1 2 2 ", text);
  });
}
