// Fresh PostgreSQL databases for tests, from the pgfresh binary. The package has no driver: a database is a name and URLs.

"use strict";

const { PgfreshError, server } = require("./server.js");
const { Statements } = require("./statements.js");

let beginTest;

class Database {
  #recorded;
  #limits;
  #test;
  #exceeded = [];
  #resets = 0;

  // `limits` is the budget in the form of the HTTP API. `test` is the name of the test, if the caller knows it.
  constructor({ name, url, jdbc_url, socket_url, template, recorded = false }, limits, test) {
    Object.assign(this, { name, url, jdbcUrl: jdbc_url, socketUrl: socket_url, template });
    this.#recorded = recorded;
    this.#limits = limits;
    this.#test = test;
  }

  static {
    // Resets a database that several tests use in turn, for the next of them.
    beginTest = async (database, test) => {
      await database.reset({ closeSessions: true });
      database.#test = test;
      database.#exceeded = [];
    };
  }

  get recorded() {
    return this.#recorded;
  }

  async reset({ closeSessions = false } = {}) {
    const test = this.#test === undefined ? {} : { test: sendable(this.#test) };
    const body = { ...(closeSessions && { close_sessions: true }), ...test, ...this.#limits };
    const { message } = await (await server()).request("POST", `${pathOf(this)}/reset`, body);
    this.#resets += 1;
    if (message) this.#exceeded.push(message);
  }

  async release({ failed = false, test } = {}) {
    const { url } = await (await server()).request("DELETE", pathOf(this) + queryOf(failed, test));
    return url;
  }

  async statements(block) {
    const [before, resets] = [await this.#measure({}), this.#resets];
    await block();
    return new Statements(before, await this.#measure({}), this.#resets !== resets);
  }

  async checkBudget() {
    if (!this.#recorded && !Object.keys(this.#limits).length) return;
    const { message } = await this.#measure(this.#limits);
    const exceeded = [...this.#exceeded, ...(message ? [message] : [])];
    if (!exceeded.length) return;
    const error = new Error(exceeded.map((message) => `budget exceeded: ${message}`).join("\n"));
    // A stack trace would show the end of the test, not the statements that exceeded the budget.
    error.stack = `${error}`;
    throw error;
  }

  async #measure(limits) {
    const query = Object.entries(limits).map(([name, limit]) => `${name}=${encodeURIComponent(limit)}`).join("&");
    return (await server()).request("GET", `${pathOf(this)}/statements${query && `?${query}`}`);
  }
}

function queryOf(failed, test) {
  const name = test === undefined ? [] : [`test=${encodeURIComponent(sendable(test))}`];
  const parts = [...(failed ? ["failed=true"] : []), ...name];
  return parts.length ? `?${parts.join("&")}` : "";
}

// Returns at most 1000 characters of a test's name. Replaces lone surrogates, which UTF-8 cannot encode.
function sendable(test) {
  return Buffer.from(test.slice(0, 1000)).toString();
}

function pathOf(database) {
  return `/v1/databases/${encodeURIComponent(database.name)}`;
}

// Returns a budget in the form of the HTTP API. A number as `time` is in milliseconds.
function limitsOf({ statements, nPlusOne, time } = {}) {
  const duration = typeof time === "number" ? `${Math.ceil(time)}ms` : time;
  const limits = { statements, n_plus_one: nPlusOne, time: duration };
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
}

function freshDatabase(options) {
  return freshDatabaseFor(undefined, options);
}

// Leases a database for the test with the name `test`.
async function freshDatabaseFor(test, { template, name, isolation, record = false, budget } = {}) {
  const limits = limitsOf(budget);
  const found = await server();
  const body = { template, name, isolation, holder: found.holder };
  if (record || Object.keys(limits).length) body.record = true;
  return new Database(await found.request("POST", "/v1/databases", body), limits, test);
}

async function withFreshDatabase(...options) {
  const body = options.pop();
  const database = await freshDatabase(...options);
  let result;
  try {
    result = await body(database);
  } catch (error) {
    reportKept(await database.release({ failed: true }));
    throw error;
  }
  await endTest(database);
  return result;
}

// Releases the database of a test, and rejects if the test exceeded its budget. A test that has failed or was skipped has no
// budget.
async function endTest(database, { failed = false, skipped = false, test, print } = {}) {
  let exceeded;
  if (!failed && !skipped) {
    try {
      await database.checkBudget();
    } catch (error) {
      exceeded = error;
    }
  }
  // A name, even an empty one, tells `pgfresh run` that the client reports the budget.
  const named = test || (database.recorded ? "" : undefined);
  reportKept(await database.release({ failed: failed || exceeded !== undefined, test: named }), print);
  if (exceeded) throw exceeded;
}

// Prints the URL of a failed test's database, if pgfresh keeps it.
function reportKept(url, print = console.error) {
  if (url) print(`pgfresh: kept the database of the failed test: ${url}`);
}

module.exports = { Database, PgfreshError, Statements, beginTest, endTest, freshDatabase, freshDatabaseFor, reportKept, withFreshDatabase };
