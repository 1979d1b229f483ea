// What the tests of budgets do in their databases, in each framework.

"use strict";

const pg = require("pg");

// One query for each author, after another statement if there is one.
async function booksOf(database, authors, before) {
  const client = new pg.Client(database.url);
  await client.connect();
  if (before) await client.query(before);
  for (let author = 0; author < authors; author++) await client.query("SELECT 'book' WHERE $1 > 0", [author]);
  await client.end();
}

module.exports = { booksOf };
