export {
  Budget,
  Database,
  DatabaseOptions,
  PgfreshError,
  Statement,
  Statements,
  freshDatabase,
  withFreshDatabase,
} from "./index.js";
