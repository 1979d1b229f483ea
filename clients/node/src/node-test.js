// Helper for node:test: leases a database for a test, and releases it afterwards.

"use strict";

const path = require("node:path");

const { endTest, freshDatabaseFor } = require("./index.js");

// Whether Node runs a hook that another hook has added. Node does since 20.19 and 22.13.
const [major, minor] = process.versions.node.split(".").map(Number);
const RUNS_ADDED_HOOKS = major >= 24 || (major === 22 && minor >= 13) || (major === 20 && minor >= 19);

// Returns the path of the test's file from the working directory, and its name with those of its suites. Node has both since 20.16.
function nameOf(t) {
  const file = t.filePath ?? process.argv[1];
  const name = t.fullName ?? t.name;
  return file ? `${path.relative(process.cwd(), file)} > ${name}` : name;
}

async function freshDatabase(t, options) {
  const test = nameOf(t);
  const database = await freshDatabaseFor(test, options);
  // Node sets `t.passed` since 20.12.
  const release = () => endTest(database, { failed: t.passed === false, test, print: (line) => t.diagnostic(line) });
  // The release must follow the hooks that the test adds, because these close its connections.
  t.after(RUNS_ADDED_HOOKS ? () => t.after(release) : release);
  return database;
}

module.exports = { freshDatabase };
