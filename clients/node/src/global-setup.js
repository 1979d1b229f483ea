// A `globalSetup` of jest and vitest: one server for all processes and files of the run. Without it each starts or joins one by itself.

"use strict";

const { server } = require("./server.js");

module.exports = async function setup() {
  Object.assign(process.env, (await server({ again: true })).environment);
};
