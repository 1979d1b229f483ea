// `globalSetup` for jest and vitest: finds one server for all processes and files in a run, before the first test.

"use strict";

const { exportServer } = require("./server.js");

// Promises for the environment variables: of the current run, and of a search that hasn't ended.
let current, renewing;

function renew() {
  renewing ??= exportServer().finally(() => (renewing = undefined));
  current = renewing;
  return current;
}

// jest calls this function before each run in watch mode. vitest calls it once for each project; the projects share a
// server.
module.exports = async function setup(project) {
  if (!project?.provide) {
    await renew();
    return;
  }
  project.provide("pgfresh", await (current ?? renew()));
  // vitest calls the hooks of all projects concurrently. Its workers don't see environment variables that change later,
  // but they do see provided values.
  project.onTestsRerun?.(async () => project.provide("pgfresh", await renew()));
};
