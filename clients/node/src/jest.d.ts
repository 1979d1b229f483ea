import type { Database, Wish } from "./index.js";

/**
 * Leases a database before each test of the file or the `describe` that it is called in, and releases it afterwards. What it
 * returns is, within a test, the database of that test. A test beyond its budget fails.
 */
export function useFreshDatabase(wish?: Wish): Omit<Database, "release">;
