export { Database, PgfreshError, Wish, freshDatabase, withFreshDatabase } from "./index.js";
