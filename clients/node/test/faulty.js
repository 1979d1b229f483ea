// Requests faults for the tests in each framework.

"use strict";

const assert = require("node:assert/strict");
const pg = require("pg");

async function query(database, ...queries) {
  const client = new pg.Client(database.url);
  await client.connect();
  try {
    for (const text of queries) await client.query(text);
  } finally {
    await client.end();
  }
}

// Requests a fault that fires.
exports.fires = async (database) => {
  await database.fault("40001", { at: "commit" });
  await assert.rejects(query(database, "BEGIN", "COMMIT"), { code: "40001" });
  const [{ text, fired, statements }] = await database.faults();
  assert.deepEqual([text, fired, statements], ["40001 at commit", 1, ["COMMIT"]]);
};

// Requests a fault that never fires.
exports.never = (database) => database.fault({ delay: 2000, statement: "UPDATE" });

// Requests a fault with SQL. The fault never fires.
exports.neverBySql = (database) => query(database, `SET pgfresh.fault = '{"error": "57014", "statement": "never"}'`);
