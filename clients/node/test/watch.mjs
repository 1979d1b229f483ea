// watch.mjs FRAMEWORK: in one process three runs of its file "watched", as in watch mode. Before the second one the schema changes,
// and before the third one the background server is stopped. In the end one pgfresh is left.

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

// The programs `pgfresh serve` that this process has started and that have not ended.
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
// The one of the run before ends when it has noticed that it has to.
while (servers().length > 1) await setTimeout(10);
process.exit(servers().length === 1 ? 0 : 1);
