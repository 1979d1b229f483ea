// A `globalSetup` of jest and vitest: one server for all processes and files of a run. Without it each starts or joins one by itself.

"use strict";

const { handOn } = require("./server.js");

// The variables of the current run, or those that are being found.
let current, renewing;

function renew() {
  renewing ??= handOn().finally(() => (renewing = undefined));
  current = renewing;
  return current;
}

// jest calls this before each run of watch mode, vitest once for each of its projects. Those share a server.
module.exports = async function setup(project) {
  if (!project?.provide) {
    await renew();
    return;
  }
  project.provide("pgfresh", await (current ?? renew()));
  // vitest tells all projects of a new run at once. Its workers never see variables that are set later, but what is provided.
  project.onTestsRerun?.(async () => project.provide("pgfresh", await renew()));
};
