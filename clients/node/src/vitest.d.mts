import type { TestAPI } from "vitest";
import type { Database, DatabaseOptions } from "./index.js";

/** Fixtures that a test can request. */
export interface FreshFixtures {
  /** A fresh database for this test alone. */
  freshDatabase: Database;
  /** URL of `freshDatabase`. */
  freshUrl: string;
  /** Options of `freshDatabase`. Set them with `test.scoped({ freshOptions: … })`, or for a project with `provide` in vitest's configuration. */
  freshOptions: DatabaseOptions;
}

/** `test` of vitest with fixtures for fresh databases. */
export const test: TestAPI<FreshFixtures>;
export const it: typeof test;
