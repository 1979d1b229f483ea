// With the variable ALONE, no global setup starts a server for all files.
const isAlone = "ALONE" in process.env;

module.exports = {
  testEnvironment: "../../src/jest-environment.js",
  ...(isAlone ? { maxWorkers: 1, testTimeout: 60_000 } : { globalSetup: "../../src/global-setup.js" }),
};
