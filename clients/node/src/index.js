// A fresh PostgreSQL database for every test, from the program pgfresh. No driver is needed or preferred: a database is a
// name and URLs.

"use strict";

const { PgfreshError, server } = require("./server.js");
const { Statements } = require("./statements.js");

class Database {
  #recorded;
  #limits;
  #test;
  #exceeded = [];
  #resets = 0;

  // `limits` are its budget as pgfresh reads it, and `test` is the name of the test that has it, where that is known.
  constructor({ name, url, jdbc_url, socket_url, template, recorded = false }, limits, test) {
    Object.assign(this, { name, url, jdbcUrl: jdbc_url, socketUrl: socket_url, template });
    this.#recorded = recorded;
    this.#limits = limits;
    this.#test = test;
  }

  get recorded() {
    return this.#recorded;
  }

  async reset({ closeSessions = false } = {}) {
    const test = this.#test === undefined ? {} : { test: sayable(this.#test) };
    const wish = { ...(closeSessions && { close_sessions: true }), ...test, ...this.#limits };
    const { message } = await (await server()).ask("POST", `${pathOf(this)}/reset`, wish);
    this.#resets += 1;
    if (message) this.#exceeded.push(message);
  }

  async release({ failed = false, test } = {}) {
    const answer = await (await server()).ask("DELETE", pathOf(this) + queryOf(failed, test));
    return answer.url;
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
    // Where the test is over tells nothing.
    error.stack = `${error}`;
    throw error;
  }

  async #measure(limits) {
    const query = Object.entries(limits).map(([name, limit]) => `${name}=${encodeURIComponent(limit)}`).join("&");
    return (await server()).ask("GET", `${pathOf(this)}/statements${query && `?${query}`}`);
  }
}

function queryOf(failed, test) {
  const name = test === undefined ? [] : [`test=${encodeURIComponent(sayable(test))}`];
  const parts = [...(failed ? ["failed=true"] : []), ...name];
  return parts.length ? `?${parts.join("&")}` : "";
}

// The name of a test as it is sent. Half a surrogate pair, which has no encoding, is replaced.
function sayable(test) {
  return Buffer.from(test.slice(0, 1000)).toString();
}

function pathOf(database) {
  return `/v1/databases/${encodeURIComponent(database.name)}`;
}

// A budget as pgfresh reads it; a time that is a number is one of milliseconds.
function limitsOf({ statements, nPlusOne, time } = {}) {
  const span = typeof time === "number" ? `${Math.ceil(time)}ms` : time;
  const limits = { statements, n_plus_one: nPlusOne, time: span };
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
}

function freshDatabase(wish) {
  return freshDatabaseFor(undefined, wish);
}

// The same for a test whose name is known.
async function freshDatabaseFor(test, { template, name, isolation, record = false, budget } = {}) {
  const limits = limitsOf(budget);
  const found = await server();
  const wish = { template, name, isolation, holder: found.holder };
  if (record || Object.keys(limits).length) wish.record = true;
  return new Database(await found.ask("POST", "/v1/databases", wish), limits, test);
}

async function withFreshDatabase(...wishes) {
  const body = wishes.pop();
  const database = await freshDatabase(...wishes);
  let result;
  try {
    result = await body(database);
  } catch (error) {
    tell(await database.release({ failed: true }));
    throw error;
  }
  await endTest(database);
  return result;
}

// Releases the database of a test, which fails if it is beyond its budget. `failed` tells whether it has failed before,
// and `skipped` whether it has ended as one that does not count.
async function endTest(database, { failed = false, skipped = false, test, say } = {}) {
  let exceeded;
  if (!failed && !skipped) {
    try {
      await database.checkBudget();
    } catch (error) {
      exceeded = error;
    }
  }
  // With a name, even with an empty one, `pgfresh run` leaves it to us to tell of the budget.
  const named = test || (database.recorded ? "" : undefined);
  tell(await database.release({ failed: failed || exceeded !== undefined, test: named }), say);
  if (exceeded) throw exceeded;
}

// Says where the database of a failed test is, if it was kept.
function tell(url, say = console.error) {
  if (url) say(`pgfresh: kept the database of the failed test: ${url}`);
}

module.exports = { Database, PgfreshError, Statements, endTest, freshDatabase, freshDatabaseFor, tell, withFreshDatabase };
