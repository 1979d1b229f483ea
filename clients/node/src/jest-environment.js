// jest's environment of Node, which also tells `pgfresh/jest` whether the test that ends has failed: jest tells nobody else.

"use strict";

const { TestEnvironment } = require("jest-environment-node");
const { FAILED } = require("./failed.js");

module.exports = class extends TestEnvironment {
  async handleTestEvent(event) {
    if (event.name === "test_start") this.global[FAILED] = false;
    if (event.name === "test_fn_failure") this.global[FAILED] = true;
    if (event.name === "hook_failure" && event.test) this.global[FAILED] = true;
  }
};
