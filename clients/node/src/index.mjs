export { Database, PgfreshError, Statements, freshDatabase, withFreshDatabase } from "./index.js";
