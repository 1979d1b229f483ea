// Runs statements for the budget tests in each framework.

"use strict";

const pg = require("pg");

// Runs one query for each author: an N+1. If there is a statement `before`, runs it first.
async function booksOf(database, authors, before) {
  const client = new pg.Client(database.url);
  await client.connect();
  if (before) await client.query(before);
  for (let author = 0; author < authors; author++) await client.query("SELECT 'book' WHERE $1 > 0", [author]);
  await client.end();
}

module.exports = { booksOf };
