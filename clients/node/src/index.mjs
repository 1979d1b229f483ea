export { Database, PgfreshError, freshDatabase, withFreshDatabase } from "./index.js";
