const { defineConfig } = require("@playwright/test");

module.exports = defineConfig({
  testMatch: "*.spec.js",
  outputDir: process.env.OUTPUT,
  globalSetup: require.resolve("../../src/global-setup.js"),
  reporter: "line",
  timeout: 300_000,
});
