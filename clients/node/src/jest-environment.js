// jest's environment of Node, which also tells `pgfresh/jest` whether the test that ends has failed, which hooks do not know, and
// lets it release a database after all other hooks: jest runs them in their order.

"use strict";

const { TestEnvironment } = require("jest-environment-node");
const { FAILED, LAST } = require("./failed.js");

module.exports = class extends TestEnvironment {
  async handleTestEvent(event) {
    if (event.name === "run_describe_start") {
      event.describeBlock.hooks.sort((one, other) => Number(LAST in one.fn) - Number(LAST in other.fn));
    }
    if (event.name === "test_start") this.global[FAILED] = false;
    if (event.name === "test_fn_failure") this.global[FAILED] = true;
    if (event.name === "hook_failure" && event.test) this.global[FAILED] = true;
  }
};
