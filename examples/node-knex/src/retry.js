// Transactions that run again if they fail for a reason that passes.

const MAX_ATTEMPTS = 3;
// A serialization failure, a deadlock, the end of the server's session, and the loss of the connection.
const PASSING = ["40001", "40P01", "57P01", "ECONNRESET"];
// Message of pg for a lost connection. Knex has it from the ROLLBACK, and it has no code.
const LOST = /connection error|Connection terminated/;

// Runs work in a transaction, at most three times. After a lost connection, the transaction may have been committed: the work must
// change nothing the second time.
export async function retry(db, work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.transaction(work);
    } catch (error) {
      const passes = PASSING.includes(error.code) || LOST.test(error.message);
      if (attempt === MAX_ATTEMPTS || !passes) throw error;
    }
  }
}
