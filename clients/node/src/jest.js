// Helper for jest: leases a database for each test in a file or `describe`.

"use strict";

const path = require("node:path");

const { PgfreshError, endTest, freshDatabaseFor } = require("./index.js");
const { END, FAILED, LAST } = require("./failed.js");
const { endServer } = require("./server.js");

// Returns the name of the running test for reports: the file path, relative to the working directory, and the test
// name.
function testName() {
  const { currentTestName, testPath } = expect.getState();
  return testPath ? `${path.relative(process.cwd(), testPath)} > ${currentTestName}` : currentTestName;
}

// Database of the running test. The object delegates to the current database, because each test has a new one.
class CurrentDatabase {
  #leased;
  #test;

  constructor(options) {
    beforeEach(async () => {
      globalThis[END] = endServer;
      this.#test = expect.getState().currentTestName;
      this.#leased = await freshDatabaseFor(testName(), options);
    });
    const release = async () => {
      const failed = globalThis[FAILED] === true;
      const database = this.#leased;
      this.#leased = undefined;
      if (database) await endTest(database, { failed, test: testName() });
    };
    afterEach(Object.assign(release, { [LAST]: true }));
  }

  // A concurrent test can run at the same time as the test that has the database.
  get #database() {
    const running = expect.getState().currentConcurrentTestName?.() ?? this.#test;
    if (this.#leased && running === this.#test) return this.#leased;
    const hint = 'jest runs no hooks for test.concurrent. Use withFreshDatabase from "pgfresh" there.';
    throw new PgfreshError("the database exists only in a test and in its beforeEach and afterEach hooks", { hint });
  }

  get name() {
    return this.#database.name;
  }

  get url() {
    return this.#database.url;
  }

  get jdbcUrl() {
    return this.#database.jdbcUrl;
  }

  get socketUrl() {
    return this.#database.socketUrl;
  }

  get replicaUrl() {
    return this.#database.replicaUrl;
  }

  get template() {
    return this.#database.template;
  }

  get recorded() {
    return this.#database.recorded;
  }

  async reset(options) {
    return this.#database.reset(options);
  }

  async statements(block) {
    return this.#database.statements(block);
  }

  async fault(what, options) {
    return this.#database.fault(what, options);
  }

  async faults() {
    return this.#database.faults();
  }

  async setReplicaLag(lag) {
    return this.#database.setReplicaLag(lag);
  }

  async promoteReplica() {
    return this.#database.promoteReplica();
  }

  async checkBudget() {
    return this.#database.checkBudget();
  }

  async checkFaults() {
    return this.#database.checkFaults();
  }
}

module.exports = { useFreshDatabase: (options) => new CurrentDatabase(options) };
