// Helper for node:test: leases a database for a test, and releases it afterwards.

"use strict";

const path = require("node:path");

const { PgfreshError, endTest, freshDatabaseFor } = require("./index.js");

// Whether Node runs hooks that another hook has added. Node 20 runs them since 20.19, and Node 22 since 22.13.
const [major, minor] = process.versions.node.split(".").map(Number);
const RUNS_ADDED_HOOKS = major >= 24 || (major === 22 && minor >= 13) || (major === 20 && minor >= 19);

// Returns the test's file path, relative to the working directory, and its name including its suites. Before Node
// 20.16, Node provides neither, so the path is that of the main module and the name doesn't include suites.
function nameOf(t) {
  const file = t.filePath ?? process.argv[1];
  const name = t.fullName ?? t.name;
  return file ? `${path.relative(process.cwd(), file)} > ${name}` : name;
}

// Returns a function that returns whether the test has called `t.skip`. Node doesn't tell hooks.
function watchSkip(t) {
  let skipped = false;
  const skip = t.skip.bind(t);
  t.skip = (...message) => {
    skipped = true;
    skip(...message);
  };
  return () => skipped;
}

async function freshDatabase(t, options) {
  if (typeof t?.after !== "function") {
    throw new PgfreshError("freshDatabase has no test that uses the database", { hint: "Pass it the context of a test: freshDatabase(t)." });
  }
  const isSkipped = watchSkip(t);
  const test = nameOf(t);
  const database = await freshDatabaseFor(test, options);
  // Before Node 20.12, `t.passed` is undefined, so no test counts as failed.
  const release = () => endTest(database, { failed: t.passed === false, skipped: isSkipped(), test, print: (line) => t.diagnostic(line) });
  // The release must come after the hooks that the test adds, because these hooks close the test's connections.
  t.after(RUNS_ADDED_HOOKS ? () => t.after(release) : release);
  return database;
}

module.exports = { freshDatabase };
