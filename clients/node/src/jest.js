// For jest: a database for each test of a file or of a `describe`.

"use strict";

const path = require("node:path");

const { endTest, freshDatabaseFor } = require("./index.js");
const { FAILED, LAST } = require("./failed.js");

// The running test as it is reported: its file, as seen from the working directory, and its name.
function testName() {
  const { currentTestName, testPath } = expect.getState();
  return testPath ? `${path.relative(process.cwd(), testPath)} > ${currentTestName}` : currentTestName;
}

// What stands for the database of the test that runs.
class CurrentDatabase {
  #database;

  constructor(wish) {
    beforeEach(async () => {
      this.#database = undefined;
      this.#database = await freshDatabaseFor(testName(), wish);
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

  checkBudget() {
    return this.#database.checkBudget();
  }
}

module.exports = { useFreshDatabase: (wish) => new CurrentDatabase(wish) };
