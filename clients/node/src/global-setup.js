// `globalSetup` of jest and vitest: finds one server for all processes and files of a run, before the first test.

"use strict";

const { exportServer } = require("./server.js");

// Promises of the variables of the current run, and of a search that has not ended.
let current, renewing;

function renew() {
  renewing ??= exportServer().finally(() => (renewing = undefined));
  current = renewing;
  return current;
}

// jest calls this function before each run of watch mode. vitest calls it once for each of its projects, which share a server.
module.exports = async function setup(project) {
  if (!project?.provide) {
    await renew();
    return;
  }
  project.provide("pgfresh", await (current ?? renew()));
  // vitest calls the hook of all projects at once. Its workers do not see variables that change later, but they see provided values.
  project.onTestsRerun?.(async () => project.provide("pgfresh", await renew()));
};
