// For node:test: a database that is released after its test.

"use strict";

const path = require("node:path");

const { endTest, freshDatabaseFor } = require("./index.js");

// Whether Node runs a hook that another hook has added: since 20.19 and 22.13.
const [major, minor] = process.versions.node.split(".").map(Number);
const GROWING = major >= 24 || (major === 22 && minor >= 13) || (major === 20 && minor >= 19);

// Its file, as seen from the working directory, and its name with those of its suites. Node has both since 20.16.
function nameOf(t) {
  const file = t.filePath ?? process.argv[1];
  const name = t.fullName ?? t.name;
  return file ? `${path.relative(process.cwd(), file)} > ${name}` : name;
}

async function freshDatabase(t, wish) {
  const test = nameOf(t);
  const database = await freshDatabaseFor(test, wish);
  // Node tells since 20.12 whether the test has failed.
  const release = () => endTest(database, { failed: t.passed === false, test, say: (line) => t.diagnostic(line) });
  // After the hooks that the test itself adds, which close its connections.
  t.after(GROWING ? () => t.after(release) : release);
  return database;
}

module.exports = { freshDatabase };
