// Provides a connection that the test must close before the release. If the server closes it, pg throws an error.

"use strict";

const assert = require("node:assert/strict");
const pg = require("pg");

exports.connect = async (url) => {
  const client = new pg.Client(url);
  await client.connect();
  return client;
};

// Checks that the connection still works, and closes it.
exports.end = async (client) => {
  assert.equal((await client.query("SELECT 1 AS one")).rows[0].one, 1);
  await client.end();
};
