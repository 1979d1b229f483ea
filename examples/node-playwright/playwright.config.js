import { createRequire } from "node:module";
import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests",
  fullyParallel: true,
  workers: 2,
  reporter: "line",
  // Builds the template before the first test.
  globalSetup: createRequire(import.meta.url).resolve("pgfresh/global-setup"),
  // A browser of the system, for example /usr/bin/chromium. Without the variable, Playwright uses its own.
  use: { launchOptions: { executablePath: process.env.CHROMIUM } },
});
