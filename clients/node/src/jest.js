// Helper for jest: leases a database for each test in a file or `describe`.

"use strict";

const path = require("node:path");

const { endTest, freshDatabaseFor } = require("./index.js");
const { FAILED, LAST } = require("./failed.js");

// Returns the name of the running test for reports: the file path, relative to the working directory, and the test
// name.
function testName() {
  const { currentTestName, testPath } = expect.getState();
  return testPath ? `${path.relative(process.cwd(), testPath)} > ${currentTestName}` : currentTestName;
}

// Database of the running test. The object delegates to the current database, because each test has a new one.
class CurrentDatabase {
  #database;

  constructor(options) {
    beforeEach(async () => {
      this.#database = undefined;
      this.#database = await freshDatabaseFor(testName(), options);
    });
    const release = async () => {
      const failed = globalThis[FAILED] === true;
      if (this.#database) await endTest(this.#database, { failed, test: testName() });
    };
    afterEach(Object.assign(release, { [LAST]: true }));
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

  reset(options) {
    return this.#database.reset(options);
  }

  statements(block) {
    return this.#database.statements(block);
  }

  fault(what, options) {
    return this.#database.fault(what, options);
  }

  faults() {
    return this.#database.faults();
  }

  setReplicaLag(lag) {
    return this.#database.setReplicaLag(lag);
  }

  promoteReplica() {
    return this.#database.promoteReplica();
  }

  checkBudget() {
    return this.#database.checkBudget();
  }

  checkFaults() {
    return this.#database.checkFaults();
  }
}

module.exports = { useFreshDatabase: (options) => new CurrentDatabase(options) };
