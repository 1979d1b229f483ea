import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["vitest/*.test.mjs"],
    // Builds the template before the first test.
    globalSetup: "pgfresh/global-setup",
  },
});
