// Retries transactions after temporary errors.

const MAX_ATTEMPTS = 3;
// Errors that are worth a retry: a serialization failure, a deadlock, a session that the server ended, and a lost
// connection. Some of pg's errors for a lost connection don't have a code.
const PASSING = ["40001", "40P01", "57P01", "ECONNRESET", undefined];

// Runs work in a transaction, at most three times. If the connection was lost, the transaction may have been
// committed, so the work must not change anything the second time.
export async function retry(db, work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.transaction(work);
    } catch (error) {
      if (attempt === MAX_ATTEMPTS || !PASSING.includes(error.code)) throw error;
    }
  }
}
