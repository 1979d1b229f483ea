// Leases fresh PostgreSQL databases for tests from the pgfresh binary. The package has no driver: a `Database` has a
// name and URLs.

"use strict";

const { faultOf, statusOf, timeOf, unfiredMessage } = require("./faults.js");
const { checkMembers } = require("./options.js");
const { PgfreshError, server } = require("./server.js");
const { Statements } = require("./statements.js");

// Members that the responses must have, and their types.
const LEASED = { name: "string", url: "string", jdbc_url: "string", socket_url: "string", template: "string" };
const MEASURED = { count: "number", seconds: "number", complete: "boolean", statements: "array" };

let beginTest;
let endLease;

class Database {
  #recorded;
  #limits;
  #test;
  #exceeded = [];
  #resets = 0;
  // Whether this object has requested a fault since the lease or the last reset.
  #faulty = false;
  #released = false;

  // `limits` is the budget, as the HTTP API expects it. `test` is the name of the test, or undefined if it is unknown.
  constructor({ name, url, jdbc_url, socket_url, replica_url, template, recorded = false }, limits, test) {
    Object.assign(this, { name, url, jdbcUrl: jdbc_url, socketUrl: socket_url, template });
    if (replica_url) this.replicaUrl = replica_url;
    this.#recorded = recorded;
    this.#limits = limits;
    this.#test = test;
  }

  static {
    // Resets a database that consecutive tests share, before `test` uses it. Rejects if the previous test passed
    // although one of its faults never fired.
    beginTest = async (database, test, { passed }) => {
      const unfired = await database.#reset({ closeSessions: true });
      database.#test = test;
      database.#exceeded = [];
      if (passed && unfired) throw new PgfreshError(unfired);
    };

    // Ends a lease. Resolves to the URL of the database if pgfresh keeps it, and a message about faults that never
    // fired. A second call does nothing, because another lease can have the name.
    endLease = async (database, { failed = false, test } = {}) => {
      database.#faulty = false;
      if (database.#released) return { unfired: "" };
      database.#released = true;
      const ended = await (await server()).request("DELETE", pathOf(database) + queryOf(failed, test));
      return { url: ended.url, unfired: unfiredMessage(ended) };
    };
  }

  get recorded() {
    return this.#recorded;
  }

  async reset(options = {}) {
    checkMembers("reset", "option", options, ["closeSessions"]);
    const unfired = await this.#reset(options);
    if (unfired) throw new PgfreshError(unfired);
  }

  // Resets the database. Resolves to a message about faults that never fired.
  async #reset({ closeSessions = false } = {}) {
    const test = this.#test === undefined ? {} : { test: sendable(this.#test) };
    const body = { ...(closeSessions && { close_sessions: true }), ...test, ...this.#limits };
    const ended = await (await server()).request("POST", `${pathOf(this)}/reset`, body);
    this.#resets += 1;
    this.#faulty = false;
    if (ended.message) this.#exceeded.push(ended.message);
    return unfiredMessage(ended);
  }

  async release(options = {}) {
    checkMembers("release", "option", options, ["failed", "test"]);
    const { url, unfired } = await endLease(this, options);
    if (unfired && !options.failed) throw new PgfreshError(unfired);
    return url;
  }

  async fault(what, options) {
    await (await server()).request("POST", `${pathOf(this)}/faults`, faultOf(what, options));
    this.#faulty = true;
  }

  async faults() {
    const { faults } = await (await server()).request("GET", `${pathOf(this)}/faults`, undefined, { faults: "array" });
    return faults.map(statusOf);
  }

  async setReplicaLag(lag) {
    await (await server()).request("POST", `${pathOf(this)}/replica`, { lag: timeOf(lag) });
  }

  async promoteReplica() {
    await (await server()).request("POST", `${pathOf(this)}/promote`);
  }

  async statements(block) {
    const [before, resets] = [await this.#measure({}), this.#resets];
    await block();
    return new Statements(before, await this.#measure({}), this.#resets !== resets);
  }

  async checkBudget() {
    if (this.#released || (!this.#recorded && !Object.keys(this.#limits).length)) return;
    const { message } = await this.#measure(this.#limits);
    const exceeded = [...this.#exceeded, ...(message ? [message] : [])];
    if (!exceeded.length) return;
    const error = new Error(exceeded.map((message) => `budget exceeded: ${message}`).join("\n"));
    // The stack trace would show the end of the test, not the statements that exceeded the budget, so omit it.
    error.stack = `${error}`;
    throw error;
  }

  async checkFaults() {
    if (!this.#faulty) return;
    const unfired = unfiredMessage(await (await server()).request("GET", `${pathOf(this)}/faults`));
    this.#faulty = false;
    if (!unfired) return;
    const error = new PgfreshError(unfired);
    // The stack trace would show the end of the test, so omit it.
    error.stack = `${error}`;
    throw error;
  }

  async #measure(limits) {
    const query = Object.entries(limits).map(([name, limit]) => `${name}=${encodeURIComponent(limit)}`).join("&");
    return (await server()).request("GET", `${pathOf(this)}/statements${query && `?${query}`}`, undefined, MEASURED);
  }
}

function queryOf(failed, test) {
  const name = test === undefined ? [] : [`test=${encodeURIComponent(sendable(test))}`];
  const parts = [...(failed ? ["failed=true"] : []), ...name];
  return parts.length ? `?${parts.join("&")}` : "";
}

// Returns at most the first 1000 characters of a test name. Replaces lone surrogates, because UTF-8 can't encode them.
function sendable(test) {
  return Buffer.from(test.slice(0, 1000)).toString();
}

function pathOf(database) {
  return `/v1/databases/${encodeURIComponent(database.name)}`;
}

// Returns a budget, as the HTTP API expects it. If `time` is a number, it is in milliseconds.
function limitsOf(budget = {}) {
  checkMembers("budget", "limit", budget, ["statements", "nPlusOne", "time"]);
  const { statements, nPlusOne, time } = budget;
  const limits = { statements, n_plus_one: nPlusOne, time: timeOf(time) };
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
}

function freshDatabase(options) {
  return freshDatabaseFor(undefined, options);
}

// Leases a database for the test with the name `test`.
async function freshDatabaseFor(test, options = {}) {
  checkMembers("database", "option", options, ["template", "name", "isolation", "record", "budget"]);
  const { template, name, isolation, record = false, budget } = options;
  const limits = limitsOf(budget);
  const found = await server();
  const body = { template, name, isolation, holder: found.holder };
  if (record || Object.keys(limits).length) body.record = true;
  return new Database(await found.request("POST", "/v1/databases", body, LEASED), limits, test);
}

async function withFreshDatabase(...options) {
  const body = options.pop();
  if (typeof body !== "function") throw new PgfreshError("withFreshDatabase has no function to run");
  const database = await freshDatabase(...options);
  let result;
  try {
    result = await body(database);
  } catch (error) {
    // An error of the release must not replace the error of the test.
    await database.release({ failed: true }).then((url) => reportKept(url), (reason) => reportRefused(reason));
    throw error;
  }
  await endTest(database);
  return result;
}

// Releases the database of a test. Rejects if the test exceeded its budget or if one of its faults never fired,
// unless the test failed or was skipped.
async function endTest(database, { failed = false, skipped = false, test, print } = {}) {
  let error;
  if (!failed && !skipped) {
    try {
      await database.checkBudget();
      await database.checkFaults();
    } catch (reason) {
      error = reason;
    }
  }
  // A name, even an empty name, tells `pgfresh run` that the client reports the budget.
  const named = test || (database.recorded ? "" : undefined);
  const ended = endLease(database, { failed: failed || error !== undefined, test: named });
  const { url, unfired } = await (error ? ended.catch((reason) => reportRefused(reason, print)) : ended);
  reportKept(url, print);
  if (error) throw error;
  if (unfired && !failed && !skipped) throw new PgfreshError(unfired);
}

// Prints why pgfresh refused to release the database of a failed test.
function reportRefused(reason, print = console.error) {
  print(`pgfresh: ${reason.message}`);
  return {};
}

// Prints the URL of a failed test's database if pgfresh keeps the database.
function reportKept(url, print = console.error) {
  if (url) print(`pgfresh: kept the database of the failed test: ${url}`);
}

module.exports = { Database, PgfreshError, Statements, beginTest, endLease, endTest, freshDatabase, freshDatabaseFor, reportKept, withFreshDatabase };
