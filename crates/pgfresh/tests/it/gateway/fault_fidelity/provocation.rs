//! Defines real errors, and how other sessions provoke them.

use serde_json::{Value, json};

use super::ISOLATIONS;
use super::script::Block;
use super::side::Others;

/// Real error that other sessions cause in a client's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provocation {
    /// 40001: another transaction has changed the row.
    UpdateConflict,
    /// 40001 at COMMIT: two serializable transactions have each read what the other writes.
    CommitConflict,
    /// 40001 at a statement in a serializable transaction.
    ReadConflict,
    /// 40P01: another transaction waits for a row that this transaction has locked.
    Deadlock,
    /// 55P03: another transaction has locked the row or the table for longer than `lock_timeout`.
    LockTimeout,
    /// 57014: another session cancels the statement.
    Cancel,
    /// 57014 after some rows: another session cancels the statement while it sends its result.
    LateCancel,
    /// 57P01: another session terminates the backend.
    Terminate,
    /// 25006: the transaction is read-only.
    ReadOnly,
    /// 53400: the statement needs more temporary files than `temp_file_limit`.
    TempFiles,
    /// 53100: the table's file system is full.
    DiskFull,
    /// 53200: the statement needs more locks than the server has memory for.
    ManyLocks,
}

use Provocation::{
    Cancel, CommitConflict, Deadlock, DiskFull, LateCancel, LockTimeout, ManyLocks, ReadConflict, ReadOnly,
    TempFiles, Terminate, UpdateConflict,
};

/// Statements that need more space than the small file system has.
const FILLING: [&str; 2] = [
    "INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 1000)",
    "WITH more AS (SELECT repeat('y', 1000) FROM generate_series(1, 1000)) INSERT INTO filler SELECT * FROM more",
];
/// Statements that need more locks than the server has memory for.
const LOCKING: [&str; 3] = [
    "SELECT count(pg_advisory_xact_lock(n)) FROM generate_series(1, 100000) n",
    "INSERT INTO entry SELECT 7, 'struck' FROM generate_series(1, 100000) n WHERE pg_advisory_xact_lock(n) IS NULL",
    "COPY (SELECT count(pg_advisory_xact_lock(n)) FROM generate_series(1, 100000) n) TO STDOUT",
];

impl Provocation {
    /// Returns the statements that can fail with this error.
    pub(super) fn statements(self) -> &'static [&'static str] {
        match self {
            UpdateConflict => &[
                "UPDATE account SET balance = balance - 10 WHERE id = 1",
                "DELETE FROM account WHERE id = 1",
                "UPDATE account SET balance = 0 WHERE id < 3 RETURNING id",
                "SELECT balance FROM account WHERE id = 1 FOR UPDATE",
                "WITH paid AS (UPDATE account SET balance = 7 WHERE id = 1 RETURNING id) INSERT INTO entry SELECT id, 'paid' FROM paid",
            ],
            CommitConflict => {
                &["COMMIT", "END", "commit work", "/* last */ COMMIT TRANSACTION", "COMMIT AND CHAIN"]
            }
            ReadConflict => &[
                "SELECT count(*) FROM entry",
                "INSERT INTO entry VALUES (7, 'struck')",
                "COPY (SELECT * FROM entry) TO STDOUT",
            ],
            Deadlock => &[
                "UPDATE account SET balance = 0 WHERE id = 2",
                "DELETE FROM account WHERE id = 2",
                "SELECT balance FROM account WHERE id = 2 FOR NO KEY UPDATE",
                "UPDATE account SET balance = 1 WHERE id > 1 RETURNING balance",
            ],
            LockTimeout => &[
                "UPDATE account SET balance = 0 WHERE id = 1",
                "SELECT balance FROM account WHERE id = 1 FOR SHARE",
                "ALTER TABLE account ADD COLUMN more int",
                "TRUNCATE account",
                "LOCK TABLE account",
                "CREATE INDEX ON account (balance)",
            ],
            Cancel | Terminate => &[
                "INSERT INTO entry SELECT 7, 'struck' FROM pg_sleep(60)",
                "UPDATE account SET balance = 0 WHERE id = 1 AND pg_sleep(60) IS NULL",
                "SELECT balance, pg_sleep(60) FROM account",
                "COPY (SELECT pg_sleep(60)) TO STDOUT",
                "FETCH 1 FROM sleeping",
                "DO 'BEGIN PERFORM pg_sleep(60); END'",
            ],
            LateCancel => &["SELECT n FROM generate_series(1, 4) n WHERE n < 4 OR pg_sleep(60) IS NULL"],
            TempFiles => &[
                "SELECT n FROM generate_series(1, 30000) n ORDER BY n % 7",
                "INSERT INTO entry SELECT n, 'struck' FROM generate_series(1000, 30000) n ORDER BY n % 7",
            ],
            DiskFull => &FILLING,
            ManyLocks => &LOCKING,
            ReadOnly => &[
                "INSERT INTO entry VALUES (7, 'struck')",
                "UPDATE account SET balance = 0 WHERE id = 1",
                "DELETE FROM account",
                "CREATE TABLE more (id int)",
                "TRUNCATE account",
                "COPY entry FROM STDIN",
                "DROP TABLE entry",
            ],
        }
    }

    /// Returns the blocks where the error is possible.
    pub(super) fn blocks(self) -> &'static [Block] {
        match self {
            // After ROLLBACK TO, the real transaction fails again at COMMIT.
            ReadConflict => &[Block::Transaction],
            CommitConflict | UpdateConflict | Deadlock => &[Block::Transaction, Block::Savepoint],
            _ => &[Block::None, Block::Transaction, Block::Savepoint],
        }
    }

    /// Returns the statement that begins the transaction on a real server.
    pub(super) fn begin(self) -> &'static str {
        match self {
            UpdateConflict => "BEGIN ISOLATION LEVEL REPEATABLE READ",
            CommitConflict | ReadConflict => "BEGIN ISOLATION LEVEL SERIALIZABLE",
            _ => "BEGIN",
        }
    }

    /// Returns the settings for the client's session.
    pub(super) fn settings(self) -> &'static str {
        match self {
            Deadlock => "SET deadlock_timeout = '10ms'",
            LockTimeout => "SET lock_timeout = '10ms'",
            TempFiles => "SET temp_file_limit = '64kB'; SET work_mem = '64kB'",
            _ => "SET work_mem = '4MB'",
        }
    }

    /// Returns the first statements of a transaction.
    pub(super) fn first(self) -> &'static [&'static str] {
        match self {
            CommitConflict | ReadConflict => {
                &["SELECT count(*) AS first FROM entry", "INSERT INTO entry VALUES (1, 'first')"]
            }
            Deadlock => &["UPDATE account SET balance = 50 WHERE id = 1"],
            Cancel | Terminate => {
                &["INSERT INTO entry VALUES (1, 'first')", "DECLARE sleeping CURSOR FOR SELECT pg_sleep(60)"]
            }
            _ => &["INSERT INTO entry VALUES (1, 'first')", "SELECT count(*) FROM account"],
        }
    }

    /// Returns a statement that can run directly before the failing statement.
    pub(super) fn neighbour(self) -> &'static str {
        match self {
            CommitConflict | ReadConflict | ReadOnly => "SELECT 'neighbour'",
            _ => "INSERT INTO entry VALUES (2, 'neighbour')",
        }
    }

    /// Returns the isolation modes where the client's session can have its settings.
    pub(super) fn isolations(self) -> &'static [&'static str] {
        // The long transaction in rollback isolation also needs temporary files.
        if self == TempFiles { &["clone", "server"] } else { &ISOLATIONS }
    }

    /// Whether the error ends the session.
    pub(super) fn is_fatal(self) -> bool {
        self == Terminate
    }

    /// Returns the error's SQLSTATE.
    pub(super) fn sqlstate(self) -> &'static str {
        match self {
            UpdateConflict | CommitConflict | ReadConflict => "40001",
            Deadlock => "40P01",
            LockTimeout => "55P03",
            Cancel | LateCancel => "57014",
            Terminate => "57P01",
            ReadOnly => "25006",
            TempFiles => "53400",
            DiskFull => "53100",
            ManyLocks => "53200",
        }
    }

    /// Returns the request for a fault that imitates this error.
    pub(super) fn fault(self, statement: &str) -> Value {
        let error = self.sqlstate();
        match self {
            CommitConflict => json!({"error": error, "at": "commit"}),
            LateCancel => json!({"error": error, "at": "after statement", "statement": statement}),
            _ => json!({"error": error, "statement": statement}),
        }
    }

    /// Lets other sessions do what must happen before the client's statement.
    pub(super) fn arrange(self, others: &mut Others) {
        match self {
            UpdateConflict => others.run("UPDATE account SET other = other + 1 WHERE id = 1"),
            CommitConflict | ReadConflict => others.run(
                "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM entry; \
                 INSERT INTO entry VALUES (100, 'other'); COMMIT",
            ),
            Deadlock => {
                others
                    .run("SET deadlock_timeout = '10min'; BEGIN; UPDATE account SET other = 1 WHERE id = 2");
                others.wait_for_lock("UPDATE account SET other = 1 WHERE id = 1");
            }
            LockTimeout => others.run("BEGIN; UPDATE account SET other = 1 WHERE id = 1"),
            Cancel | LateCancel | Terminate | ReadOnly | TempFiles | DiskFull | ManyLocks => {}
        }
    }

    /// Returns what the client's session runs before its statement, on the real side only.
    pub(super) fn preparation(self, block: Block) -> Option<&'static str> {
        match (self, block) {
            (ReadOnly, Block::None) => Some("SET default_transaction_read_only = on"),
            (ReadOnly, _) => Some("SET LOCAL transaction_read_only = on"),
            _ => None,
        }
    }

    /// Returns the function that another session calls to interrupt the client's statement.
    pub(super) fn interruption(self) -> Option<&'static str> {
        match self {
            Cancel | LateCancel => Some("pg_cancel_backend"),
            Terminate => Some("pg_terminate_backend"),
            _ => None,
        }
    }
}
