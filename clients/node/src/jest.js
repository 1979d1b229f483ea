// For jest: a database for each test of a file or of a `describe`.

"use strict";

const { freshDatabase, tell } = require("./index.js");
const { FAILED } = require("./failed.js");

// What stands for the database of the test that runs.
class CurrentDatabase {
  #database;

  constructor(wish) {
    beforeEach(async () => {
      this.#database = undefined;
      this.#database = await freshDatabase(wish);
    });
    afterEach(async () => {
      const failed = globalThis[FAILED] === true;
      tell(await this.#database?.release({ failed, test: expect.getState().currentTestName }));
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

  reset(options) {
    return this.#database.reset(options);
  }
}

module.exports = { useFreshDatabase: (wish) => new CurrentDatabase(wish) };
