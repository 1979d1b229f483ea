export {
  Budget,
  Database,
  DatabaseOptions,
  FaultOptions,
  FaultStatus,
  Moment,
  PgfreshError,
  SlowFault,
  Statement,
  Statements,
  freshDatabase,
  withFreshDatabase,
} from "./index.js";
