#!/usr/bin/env node
// Implements `npx pgfresh …`: runs the binary in the platform's package, or else the binary on PATH.

"use strict";

const { spawn } = require("node:child_process");
const { HINT, PLATFORM, binaryOnPath, bundledBinary } = require("../src/binary.js");

const binary = process.env.PGFRESH_BIN || bundledBinary() || binaryOnPath();
if (!binary) {
  console.error(`pgfresh: cannot find "pgfresh": neither the package ${PLATFORM} nor PATH has it\nHINT:  ${HINT}`);
  process.exit(127);
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) {
  // A terminal sends Ctrl-C to both processes, so this process must not forward it.
  process.on(signal, () => (signal === "SIGINT" && process.stdin.isTTY) || child.kill(signal));
}
child.on("error", (error) => {
  console.error(`pgfresh: could not run "${binary}": ${error.message}\nHINT:  ${HINT}`);
  process.exit(126);
});
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
