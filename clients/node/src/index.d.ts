/** What a database shall be like. */
export interface Wish {
  /** What it is a copy of; the default template of pgfresh.toml if it is left out. */
  template?: string;
  /** Its name, which must be free; one is made up if it is left out. */
  name?: string;
  /** How it is kept apart from others: see pgfresh's documentation of its HTTP API. */
  isolation?: "clone" | "rollback" | "server";
  /** Whether its statements are recorded, for `Database.statements`. A budget asks for that, too. */
  record?: boolean;
  /** What its test may do in it. Limits that are left out are those of pgfresh.toml, if it has any. */
  budget?: Budget;
}

/** What a test may do in its database. It may reach each limit, and fails with more. */
export interface Budget {
  /** Statements, with BEGIN and COMMIT. */
  statements?: number;
  /** Runs of one query with different values, if these are five or more; 0 forbids any. */
  nPlusOne?: number;
  /** Time in the database: in milliseconds, or as text with a unit (`"50ms"`). */
  time?: number | string;
}

/** A statement, and what all its runs together took. */
export interface Statement {
  /** On one line, with `?` in place of values. */
  readonly text: string;
  /** How often it ran. */
  readonly count: number;
  readonly seconds: number;
  /** Rows that it returned or changed. */
  readonly rows: number;
}

/** The statements that ran within a block. As text it lists them. */
export class Statements {
  private constructor();
  /** How many ran, with BEGIN and COMMIT. */
  readonly count: number;
  /** How long all took together. */
  readonly seconds: number;
  /** Each statement once, those that ran most often first. */
  readonly mostFrequent: readonly Statement[];
  /**
   * Whether all statements are counted and listed: very many different ones are not listed, and those before a reset within
   * the block are not counted.
   */
  readonly complete: boolean;
  toString(): string;
}

/** A fresh copy of a template, ours until it is released. */
export class Database {
  private constructor();
  /** Its name, unique on its server. */
  readonly name: string;
  /** `postgresql://…`, for drivers and all else that understands libpq's URLs. */
  readonly url: string;
  /** The same for JDBC. */
  readonly jdbcUrl: string;
  /** `postgresql://…` over a unix socket, without a password. */
  readonly socketUrl: string;
  /** What it is a copy of. */
  readonly template: string;
  /** Whether its statements are recorded: `record` or `budget` asks for that, or a `[budget]` in pgfresh.toml. */
  readonly recorded: boolean;
  /** Makes it equal to its template again. Open sessions are an error, or are closed. */
  reset(options?: { closeSessions?: boolean }): Promise<void>;
  /**
   * Gives it back: its sessions are closed, it is no more. With `failed`, for the database of a failed test, resolves to the URL
   * under which it was kept, if it was. `test` is the test's name.
   */
  release(options?: { failed?: boolean; test?: string }): Promise<string | undefined>;
  /** The statements that its clients run within a block. It must be recorded. */
  statements(block: () => unknown): Promise<Statements>;
  /** Rejects if its test is beyond its budget. The helpers for test frameworks, and `withFreshDatabase`, do that. */
  checkBudget(): Promise<void>;
}

/** What pgfresh refuses or could not do; `message` has all of it. */
export class PgfreshError extends Error {
  private constructor();
  /** The first line of the message. */
  readonly primary: string;
  /** An SQLSTATE. */
  readonly code?: string;
  readonly detail?: string;
  readonly hint?: string;
}

/**
 * Leases a database. The first call of a process starts pgfresh, unless `pgfresh run` has done so.
 * @throws {PgfreshError} if it is refused
 */
export function freshDatabase(wish?: Wish): Promise<Database>;

/**
 * Leases a database for as long as `body` runs. If that throws, it was a failed test's: where pgfresh has kept it is printed.
 * Rejects if `body` is beyond its budget.
 * @throws {PgfreshError} if it is refused
 */
export function withFreshDatabase<T>(body: (database: Database) => T | Promise<T>): Promise<T>;
export function withFreshDatabase<T>(wish: Wish, body: (database: Database) => T | Promise<T>): Promise<T>;
