import type { TestContext } from "node:test";
import type { Database, DatabaseOptions } from "./index.js";

/** Leases a database for this test, and releases it afterwards. A test that exceeds its budget fails. */
export function freshDatabase(t: TestContext, options?: DatabaseOptions): Promise<Database>;
