/** What a database shall be like. */
export interface Wish {
  /** What it is a copy of; the default template of pgfresh.toml if it is left out. */
  template?: string;
  /** Its name, which must be free; one is made up if it is left out. */
  name?: string;
  /** How it is kept apart from others: see pgfresh's documentation of its HTTP API. */
  isolation?: "clone" | "rollback" | "server";
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
  /** `postgresql://…` straight to the server's unix socket, past the gateway. */
  readonly socketUrl: string;
  /** What it is a copy of. */
  readonly template: string;
  /** Makes it equal to its template again. Open sessions are an error, or are closed. */
  reset(options?: { closeSessions?: boolean }): Promise<void>;
  /**
   * Gives it back: its sessions are closed, it is no more. With `failed`, for the database of a failed test, resolves to the URL
   * under which it was kept, if it was. `test` is the test's name.
   */
  release(options?: { failed?: boolean; test?: string }): Promise<string | undefined>;
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
 * @throws {PgfreshError} if it is refused
 */
export function withFreshDatabase<T>(body: (database: Database) => T | Promise<T>): Promise<T>;
export function withFreshDatabase<T>(wish: Wish, body: (database: Database) => T | Promise<T>): Promise<T>;
