export {
  Budget,
  Database,
  PgfreshError,
  Statement,
  Statements,
  Wish,
  freshDatabase,
  withFreshDatabase,
} from "./index.js";
