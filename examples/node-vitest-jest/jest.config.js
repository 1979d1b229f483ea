module.exports = {
  testMatch: ["**/jest/*.test.js"],
  // Builds the template before the first test.
  globalSetup: "pgfresh/global-setup",
  // Lets pgfresh know which tests fail.
  testEnvironment: "pgfresh/jest-environment",
};
