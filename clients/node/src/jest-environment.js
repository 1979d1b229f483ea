// jest's environment for Node, with two additions for `pgfresh/jest`. It records whether the running test has failed, because hooks
// do not know. It moves the hook that releases a database behind all others, because jest runs hooks in their order.

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
