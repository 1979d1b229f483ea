// For node:test: a database that is released after its test.

"use strict";

const { freshDatabase: lease, tell } = require("./index.js");

async function freshDatabase(t, wish) {
  const database = await lease(wish);
  t.after(async () => {
    // Node tells this since 18.20 and 20.12.
    const failed = t.passed === false;
    // The name with those of its suites: since 20.16.
    const test = t.fullName ?? t.name;
    tell(await database.release({ failed, test }), (line) => t.diagnostic(line));
  });
  return database;
}

module.exports = { freshDatabase };
