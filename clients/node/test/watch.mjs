// Usage: watch.mjs FRAMEWORK. Runs the file "watched" three times in one process, like watch mode. The schema changes
// before the second run, and `pgfresh stop` stops the background server before the third. Exits with 0 once one
// pgfresh is left.

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { servers } from "./servers.js";

const [framework] = process.argv.slice(2);
const root = fileURLToPath(new URL(framework, import.meta.url));

async function jest() {
  const { runCLI } = await import("jest");
  const run = () => runCLI({ config: `${root}/jest.config.js`, _: ["watched"], watchman: false, runInBand: true, $0: "" }, [root]);
  await run();
  return run;
}

async function vitest() {
  const { startVitest } = await import("vitest/node");
  const started = await startVitest("test", ["watched"], { root, watch: true });
  return () => started.rerunFiles();
}

const again = await (framework === "jest" ? jest() : vitest());
writeFileSync(process.env.PGFRESH_SQL, "CREATE TABLE one(); CREATE TABLE two()");
await again();
execFileSync(process.env.PGFRESH_BIN || "pgfresh", ["stop"], { stdio: "inherit" });
await again();
// The binary of the previous run takes a moment to notice that its lifeline is closed.
while (servers().length > 1) await setTimeout(10);
process.exit(servers().length === 1 ? 0 : 1);
