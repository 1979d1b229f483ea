// A connection that the server may end only after its test has: it throws where its `error` has no listener.

"use strict";

const assert = require("node:assert/strict");
const pg = require("pg");

exports.connect = async (url) => {
  const client = new pg.Client(url);
  await client.connect();
  return client;
};

// Ends the connection, which still works.
exports.end = async (client) => {
  assert.equal((await client.query("SELECT 1 AS one")).rows[0].one, 1);
  await client.end();
};
