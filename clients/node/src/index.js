// A fresh PostgreSQL database for every test, from the program pgfresh. No driver is needed or preferred: a database is a
// name and URLs.

"use strict";

const { PgfreshError, server } = require("./server.js");

class Database {
  constructor({ name, url, jdbc_url, socket_url, template }) {
    Object.assign(this, { name, url, jdbcUrl: jdbc_url, socketUrl: socket_url, template });
  }

  async reset({ closeSessions = false } = {}) {
    const wish = closeSessions ? { close_sessions: true } : {};
    await (await server()).ask("POST", `${pathOf(this)}/reset`, wish);
  }

  async release({ failed = false, test = "" } = {}) {
    const answer = await (await server()).ask("DELETE", pathOf(this) + queryOf(failed, test));
    return answer.url;
  }
}

// Half a surrogate pair, which has no encoding, is replaced.
function queryOf(failed, test) {
  const name = encodeURIComponent(Buffer.from(test.slice(0, 1000)).toString());
  const parts = [...(failed ? ["failed=true"] : []), ...(name ? [`test=${name}`] : [])];
  return parts.length ? `?${parts.join("&")}` : "";
}

function pathOf(database) {
  return `/v1/databases/${encodeURIComponent(database.name)}`;
}

async function freshDatabase({ template, name, isolation } = {}) {
  const found = await server();
  const wish = { template, name, isolation, holder: found.holder };
  return new Database(await found.ask("POST", "/v1/databases", wish));
}

async function withFreshDatabase(...wishes) {
  const body = wishes.pop();
  const database = await freshDatabase(...wishes);
  let failed = true;
  try {
    const result = await body(database);
    failed = false;
    return result;
  } finally {
    tell(await database.release({ failed }));
  }
}

// Says where the database of a failed test is, if it was kept.
function tell(url, say = console.error) {
  if (url) say(`pgfresh: kept the database of the failed test: ${url}`);
}

module.exports = { Database, PgfreshError, freshDatabase, tell, withFreshDatabase };
