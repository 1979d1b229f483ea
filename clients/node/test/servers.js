"use strict";

const { readFileSync, readdirSync } = require("node:fs");

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

module.exports = { servers };
