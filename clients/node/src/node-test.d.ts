import type { TestContext } from "node:test";
import type { Database, Wish } from "./index.js";

/** Leases a database for this test; it is released after it. A test beyond its budget fails. */
export function freshDatabase(t: TestContext, wish?: Wish): Promise<Database>;
