// Extends jest's Node environment for `pgfresh/jest`. It records whether the running test has failed, because hooks
// can't determine this. It ends the server that a test file has started, because jest loads the client anew for each
// file. It moves the hook that releases a database after all other hooks, because jest runs hooks in
// the order of their definition.

"use strict";

const { TestEnvironment } = require("jest-environment-node");
const { END, FAILED, LAST } = require("./failed.js");

module.exports = class extends TestEnvironment {
  async handleTestEvent(event) {
    if (event.name === "run_describe_start") {
      event.describeBlock.hooks.sort((one, other) => Number(LAST in one.fn) - Number(LAST in other.fn));
    }
    if (event.name === "test_start") this.global[FAILED] = false;
    if (event.name === "test_fn_failure") this.global[FAILED] = true;
    if (event.name === "hook_failure" && event.test) this.global[FAILED] = true;
  }

  async teardown() {
    await this.global[END]?.();
    await super.teardown();
  }
};
