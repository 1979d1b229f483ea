// Transactions that run again if they fail for a reason that passes.

const MAX_ATTEMPTS = 3;
// A serialization failure, a deadlock, the end of the server's session, and the loss of the connection. For the latter, some errors
// of pg have no code.
const PASSING = ["40001", "40P01", "57P01", "ECONNRESET", undefined];

// Runs work in a transaction, at most three times. After a lost connection, the transaction may have been committed: the work must
// change nothing the second time.
export async function retry(db, work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.transaction(work);
    } catch (error) {
      if (attempt === MAX_ATTEMPTS || !PASSING.includes(error.code)) throw error;
    }
  }
}
