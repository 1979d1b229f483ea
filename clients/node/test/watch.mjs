// Usage: watch.mjs FRAMEWORK. Runs the file "watched" three times in one process, like watch mode. The schema changes
// before the second run, and `pgfresh stop` stops the background server before the third. Exits with 0 once one
// pgfresh is left.

import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";

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

// Returns the process ids of running `pgfresh serve` processes that this process has started.
function servers() {
  const lines = readdirSync("/proc/self/task").map((thread) => readFileSync(`/proc/self/task/${thread}/children`, "utf8"));
  return lines.join(" ").split(" ").filter((pid) => {
    try {
      return pid && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("\0serve\0");
    } catch {
      return false;
    }
  });
}

const again = await (framework === "jest" ? jest() : vitest());
writeFileSync(process.env.PGFRESH_SQL, "CREATE TABLE one(); CREATE TABLE two()");
await again();
execFileSync(process.env.PGFRESH_BIN || "pgfresh", ["stop"], { stdio: "inherit" });
await again();
// The binary of the previous run takes a moment to notice that its lifeline is closed.
while (servers().length > 1) await setTimeout(10);
process.exit(servers().length === 1 ? 0 : 1);
