module.exports = {
  testEnvironment: "../../src/jest-environment.js",
  globalSetup: "../../src/global-setup.js",
};
