import { defineConfig } from "vitest/config";

// Builds the template before the first test.
export default defineConfig({ test: { globalSetup: "pgfresh/global-setup" } });
