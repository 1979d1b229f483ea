/** Options of a database. */
export interface DatabaseOptions {
  /** Template of the database. Default: the one in `pgfresh.toml`. */
  template?: string;
  /** Name of the database. No other database may have it. Default: pgfresh chooses one. */
  name?: string;
  /** Isolation of the database, as in the documentation of the HTTP API. */
  isolation?: "clone" | "rollback" | "server";
  /** Whether pgfresh records the statements, for `Database.statements`. A budget includes that. */
  record?: boolean;
  /** Budget of the test. A limit that is absent here is that of `[budget]` in `pgfresh.toml`. */
  budget?: Budget;
}

/** Limits for one test in its database. A test fails if it exceeds a limit. */
export interface Budget {
  /** Number of statements, with BEGIN and COMMIT. */
  statements?: number;
  /** Number of runs of one query with different values. pgfresh ignores fewer than five runs. 0 forbids an N+1. */
  nPlusOne?: number;
  /** Time in the database, in milliseconds or as text with a unit (`"50ms"`). */
  time?: number | string;
}

/** Statement with the totals of its runs. */
export interface Statement {
  /** Text of the statement in one line, with `?` in place of values. */
  readonly text: string;
  /** Number of runs. */
  readonly count: number;
  /** Total time in the database. */
  readonly seconds: number;
  /** Number of rows that the runs returned or changed. */
  readonly rows: number;
}

/** Statements that ran within a block. `toString` lists them. */
export class Statements {
  private constructor();
  /** Number of statements, with BEGIN and COMMIT. */
  readonly count: number;
  /** Total time in the database. */
  readonly seconds: number;
  /** Distinct statements, ordered by their counts, the highest first. */
  readonly mostFrequent: readonly Statement[];
  /**
   * Whether the counts and the list are complete. A reset within the block loses the statements before it, and pgfresh lists
   * only a limited number of distinct statements.
   */
  readonly complete: boolean;
  toString(): string;
}

/** Moment of a fault. */
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
  /** Moment of the fault. Default: `before statement`, and `connect` for a failover. */
  at?: Moment;
  /** Text or beginning of the statements that count. `…` in it stands for any text. Default: all. */
  statement?: string;
  /** Number of the first statement, commit or connection that the fault hits. Default: 1. */
  nth?: number;
  /** Number of statements, commits or connections that the fault hits. Default: 1. */
  times?: number;
  /** How long a failover refuses connections, in milliseconds or as text with a unit. Default: one connection for each of `times`. */
  duration?: number | string;
  /** How long transactions are read-only after a failover, in milliseconds or as text with a unit. Default: not at all. */
  readOnly?: number | string;
}

/** Fault that slows the connection down. It has one of `delay` and `bandwidth`. */
export interface SlowFault extends FaultOptions {
  /** Time by which a message arrives later, in milliseconds or as text with a unit. */
  delay?: number | string;
  /** Number of bytes per second from the moment on, with its unit: `"10kB"`. */
  bandwidth?: string;
}

/** Fault of a database, with the statements that it hit. */
export interface FaultStatus {
  /** The fault in words: `40001 at commit`. */
  readonly text: string;
  /** Number of times that the fault is to fire. */
  readonly times: number;
  /** Number of times that the fault has fired. */
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
  /** URL for drivers and programs that read libpq's URLs, `postgresql://…`. */
  readonly url: string;
  /** URL for JDBC drivers, `jdbc:postgresql://…`. */
  readonly jdbcUrl: string;
  /** URL with the server's unix socket, `postgresql://…`, without a password. */
  readonly socketUrl: string;
  /** URL of the replica, `postgresql://…`. Absent unless the template has a replica. */
  readonly replicaUrl?: string;
  /** Name of the template that the database is a copy of. */
  readonly template: string;
  /** Whether pgfresh records the statements: with `record`, with `budget`, or with a `[budget]` in `pgfresh.toml`. */
  readonly recorded: boolean;
  /**
   * Restores the state of the template. Rejects if sessions are open, unless `closeSessions` closes them. Also rejects if a fault of
   * before the reset never fired, after the reset.
   */
  reset(options?: { closeSessions?: boolean }): Promise<void>;
  /**
   * Releases the database: pgfresh closes its sessions and removes it. `failed` reports that the test failed. If pgfresh then
   * keeps the database, the promise resolves to its URL. `test` is the name of the test in profiles. Rejects after the release if a
   * fault never fired, unless the test failed.
   */
  release(options?: { failed?: boolean; test?: string }): Promise<string | undefined>;
  /** Counts the statements of all clients within a block. Rejects if pgfresh does not record the database. */
  statements(block: () => unknown): Promise<Statements>;
  /**
   * Requests a fault, which ends with the lease or its reset. `error` is an SQLSTATE, such as `"40001"`. All open sessions obey the
   * fault when the promise resolves. A test whose fault never fires fails.
   */
  fault(error: "connection lost" | "connection silent" | "failover" | (string & {}), options?: FaultOptions): Promise<void>;
  fault(fault: SlowFault): Promise<void>;
  /** Lists the faults since the lease or last reset, in the order of their requests. */
  faults(): Promise<FaultStatus[]>;
  /**
   * Rejects if a fault that this object requested has not fired. The helpers for test frameworks and `withFreshDatabase` call it. A
   * second call does nothing.
   */
  checkFaults(): Promise<void>;
  /**
   * Makes the replica lag behind, for isolation `server`. `"none"`: a commit returns once the replica shows it. `"paused"`: the replica
   * shows no further commit. A time, in milliseconds or as text with a unit: the replica shows each commit after this time.
   */
  setReplicaLag(lag: "none" | "paused" | (string & {}) | number): Promise<void>;
  /** Stops the server of the database, and its replica takes its place. */
  promoteReplica(): Promise<void>;
  /** Rejects if the test exceeded its budget. The helpers for test frameworks and `withFreshDatabase` call it. */
  checkBudget(): Promise<void>;
}

/** Error of pgfresh or of the client. `message` has all parts. */
export class PgfreshError extends Error {
  private constructor();
  /** First line of the message. */
  readonly primary: string;
  /** SQLSTATE or a code of pgfresh, unless the error is one of the client. */
  readonly code?: string;
  readonly detail?: string;
  readonly hint?: string;
  /** Way out of the error, for programs, as in the documentation of the HTTP API. */
  readonly remedy?: string;
}

/**
 * Leases a database. Outside of `pgfresh run`, the first call of a process starts pgfresh.
 * @throws {PgfreshError} if pgfresh does not start or refuses the request
 */
export function freshDatabase(options?: DatabaseOptions): Promise<Database>;

/**
 * Leases a database while `body` runs. If `body` throws, the client reports a failed test, and prints the URL of the database if
 * pgfresh keeps it. Rejects if `body` exceeds the budget.
 * @throws {PgfreshError} if pgfresh does not start or refuses the request
 */
export function withFreshDatabase<T>(body: (database: Database) => T | Promise<T>): Promise<T>;
export function withFreshDatabase<T>(options: DatabaseOptions, body: (database: Database) => T | Promise<T>): Promise<T>;
