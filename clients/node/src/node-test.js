// For node:test: a database that is released after its test.

"use strict";

const { endTest, freshDatabaseFor } = require("./index.js");

// Whether Node runs a hook that another hook has added. It skips all hooks after one that fails.
const [major, minor] = process.versions.node.split(".").map(Number);
const GROWING = major >= 24 || (major === 20 && minor >= 20);

async function freshDatabase(t, wish) {
  // The name with those of its suites: since 20.16.
  const test = t.fullName ?? t.name;
  const database = await freshDatabaseFor(test, wish);
  t.after(async () => {
    // Node tells this since 20.12.
    const failed = t.passed === false;
    try {
      await endTest(database, { failed, test, say: (line) => t.diagnostic(line) });
    } catch (error) {
      if (!GROWING) throw error;
      // The test fails after the hooks that the test itself has added.
      t.after(() => {
        throw error;
      });
    }
  });
  return database;
}

module.exports = { freshDatabase };
