// For jest: a database for each test of a file or of a `describe`.

"use strict";

const { endTest, freshDatabaseFor } = require("./index.js");
const { FAILED } = require("./failed.js");

// What stands for the database of the test that runs.
class CurrentDatabase {
  #database;

  constructor(wish) {
    beforeEach(async () => {
      this.#database = undefined;
      this.#database = await freshDatabaseFor(expect.getState().currentTestName, wish);
    });
    afterEach(async () => {
      const failed = globalThis[FAILED] === true;
      if (this.#database) await endTest(this.#database, { failed, test: expect.getState().currentTestName });
    });
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
