// For node:test: a database that is released after its test.

"use strict";

const { freshDatabase: lease, tell } = require("./index.js");

async function freshDatabase(t, wish) {
  const database = await lease(wish);
  t.after(async () => {
    // Node tells this since 18.20 and 20.12.
    const failed = t.passed === false;
    tell(await database.release({ failed }), (line) => t.diagnostic(line));
  });
  return database;
}

module.exports = { freshDatabase };
