import type { TestAPI } from "vitest";
import type { Database, Wish } from "./index.js";

/** What tests can ask for. */
export interface FreshFixtures {
  /** A fresh database for this test alone. */
  freshDatabase: Database;
  /** Its URL. */
  freshUrl: string;
  /** What it shall be like; set it by `test.scoped({ freshWish: … })`, or for a project in vitest's configuration (`provide`). */
  freshWish: Wish;
}

/** vitest's `test` with fresh databases. */
export const test: TestAPI<FreshFixtures>;
export const it: typeof test;
