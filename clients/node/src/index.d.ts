/** Options of a database. */
export interface DatabaseOptions {
  /** Template of the database. Default: the one in `pgfresh.toml`. */
  template?: string;
  /** Name of the database, which must be unique. Default: pgfresh generates a name. */
  name?: string;
  /** Isolation of the database. The HTTP API documentation describes the values. */
  isolation?: "clone" | "rollback" | "server";
  /** Whether pgfresh records the statements, for `Database.statements`. A budget implies this. */
  record?: boolean;
  /** Budget of the test. If a limit is absent, the limit in `[budget]` of `pgfresh.toml` applies. */
  budget?: Budget;
}

/** Limits for what one test does in its database. A test that exceeds a limit fails. */
export interface Budget {
  /** Number of statements, including BEGIN and COMMIT. */
  statements?: number;
  /** How often the same query may run with different values. pgfresh ignores fewer than five runs. 0 forbids an N+1. */
  nPlusOne?: number;
  /** Total time in the database, in milliseconds or as text with a unit (`"50ms"`). */
  time?: number | string;
}

/** Statement with the totals of its runs. */
export interface Statement {
  /** Text of the statement in one line, with `?` in place of values. */
  readonly text: string;
  /** Number of runs. */
  readonly count: number;
  /** Total time in the database, in seconds. */
  readonly seconds: number;
  /** Number of rows that the runs returned or changed. */
  readonly rows: number;
}

/** Statements that ran within a block. `toString` lists the statements. */
export class Statements {
  private constructor();
  /** Number of statements, including BEGIN and COMMIT. */
  readonly count: number;
  /** Total time in the database, in seconds. */
  readonly seconds: number;
  /** Distinct statements, sorted by count in descending order. */
  readonly mostFrequent: readonly Statement[];
  /**
   * Whether the counts and the list are complete. If the block resets the database, the statements before the reset are
   * missing. pgfresh also lists only a limited number of distinct statements.
   */
  readonly complete: boolean;
  toString(): string;
}

/** Moment when a fault happens. */
export type Moment =
  | "commit"
  | "before statement"
  | "during statement"
  | "after statement"
  | "before commit"
  | "after commit"
  | "connect";

/** Options of a fault. */
export interface FaultOptions {
  /** Moment of the fault. Default: `before statement`, but `connect` for a failover. */
  at?: Moment;
  /** Text or beginning of the statements that the fault can hit. `…` stands for any text. Default: all statements. */
  statement?: string;
  /** Number of the first statement, commit or connection that the fault hits. Default: 1. */
  nth?: number;
  /** Number of statements, commits or connections that the fault hits. Default: 1. */
  times?: number;
  /**
   * How long a failover refuses new connections, in milliseconds or as text with a unit. Default: it refuses as many
   * connections as `times`.
   */
  duration?: number | string;
  /**
   * How long transactions are read-only after a failover, in milliseconds or as text with a unit. Default: not at
   * all.
   */
  readOnly?: number | string;
}

/** Fault that slows the connection down. Has exactly one of `delay` and `bandwidth`. */
export interface SlowFault extends FaultOptions {
  /** How much later a message arrives, in milliseconds or as text with a unit. */
  delay?: number | string;
  /** Maximum bytes per second from the moment on, with a unit: `"10kB"`. */
  bandwidth?: string;
}

/** Requested fault, with the statements that it hit. */
export interface FaultStatus {
  /** Description of the fault: `40001 at commit`. */
  readonly text: string;
  /** How often the fault is to fire. */
  readonly times: number;
  /** How often the fault has fired. */
  readonly fired: number;
  /** Number of statements, commits or connections that the fault could have hit. */
  readonly candidates: number;
  /** Statements that the fault hit, at most 100. */
  readonly statements: readonly string[];
}

/** Leased copy of a template. */
export class Database {
  private constructor();
  /** Name of the database, unique on its server. */
  readonly name: string;
  /** URL for drivers and programs that read libpq URLs, `postgresql://…`. */
  readonly url: string;
  /** URL for JDBC drivers, `jdbc:postgresql://…`. */
  readonly jdbcUrl: string;
  /** URL with the server's unix socket, `postgresql://…`, without a password. */
  readonly socketUrl: string;
  /** URL of the replica, `postgresql://…`. Absent if the template has no replica. */
  readonly replicaUrl?: string;
  /** Name of the template that the database is a copy of. */
  readonly template: string;
  /** Whether pgfresh records the statements. `record`, `budget`, and `[budget]` in `pgfresh.toml` enable this. */
  readonly recorded: boolean;
  /**
   * Restores the state of the template. Rejects if sessions are open, unless `closeSessions` closes them. Also rejects,
   * after the reset, if a fault requested before the reset never fired.
   */
  reset(options?: { closeSessions?: boolean }): Promise<void>;
  /**
   * Releases the database: pgfresh closes its sessions and removes the database. `failed` reports that the test failed.
   * If pgfresh keeps the database of the failed test, resolves to the database URL. `test` is the name of the test in
   * profiles. Rejects, after the release, if a fault never fired, unless the test failed. A second call does nothing.
   */
  release(options?: { failed?: boolean; test?: string }): Promise<string | undefined>;
  /** Counts the statements that all clients run within a block. Rejects if pgfresh doesn't record the statements. */
  statements(block: () => unknown): Promise<Statements>;
  /**
   * Requests a fault, which lasts until the next reset or the release. `error` is an SQLSTATE, such as `"40001"`.
   * When the promise resolves, the fault applies to all open sessions. A test whose fault never fires fails.
   */
  fault(error: "connection lost" | "connection silent" | "failover" | (string & {}), options?: FaultOptions): Promise<void>;
  fault(fault: SlowFault): Promise<void>;
  /** Lists the faults requested since the lease or the last reset, in this order. */
  faults(): Promise<FaultStatus[]>;
  /**
   * Rejects if a fault that this object requested hasn't fired. The helpers for test frameworks and `withFreshDatabase`
   * call this method. A second call does nothing.
   */
  checkFaults(): Promise<void>;
  /**
   * Makes the replica lag behind, for isolation `server`. `"none"`: a commit returns once the replica shows it.
   * `"paused"`: the replica doesn't show further commits. A time, in milliseconds or as text with a unit: the replica
   * shows each commit after this time.
   */
  setReplicaLag(lag: "none" | "paused" | (string & {}) | number): Promise<void>;
  /** Stops the server of the database and promotes the replica, which takes the place of this server. */
  promoteReplica(): Promise<void>;
  /**
   * Rejects if the test exceeded its budget. The helpers for test frameworks and `withFreshDatabase` call this
   * method.
   */
  checkBudget(): Promise<void>;
}

/** Error from pgfresh or from this client. `message` contains all parts. */
export class PgfreshError extends Error {
  private constructor();
  /** First line of the message. */
  readonly primary: string;
  /** SQLSTATE or pgfresh error code. Absent if the error is from this client. */
  readonly code?: string;
  readonly detail?: string;
  readonly hint?: string;
  /** Machine-readable name of the action that resolves the error. The HTTP API documentation lists the names. */
  readonly remedy?: string;
}

/**
 * Leases a database. Outside `pgfresh run`, the first call in a process starts pgfresh.
 * @throws {PgfreshError} if pgfresh doesn't start or refuses the request
 */
export function freshDatabase(options?: DatabaseOptions): Promise<Database>;

/**
 * Leases a database while `body` runs. If `body` throws, the client reports a failed test, and if pgfresh keeps the
 * database, prints its URL. Rejects if `body` exceeds the budget.
 * @throws {PgfreshError} if pgfresh doesn't start or refuses the request
 */
export function withFreshDatabase<T>(body: (database: Database) => T | Promise<T>): Promise<T>;
export function withFreshDatabase<T>(options: DatabaseOptions, body: (database: Database) => T | Promise<T>): Promise<T>;
