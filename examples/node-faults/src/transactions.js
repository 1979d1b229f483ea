// Retries transactions.

import pg from "pg";

export function newPool(url, options) {
  const pool = new pg.Pool({ connectionString: url, ...options });
  // A client whose connection is lost emits an error. Without a listener, the process would end.
  pool.on("connect", (client) => client.on("error", () => {}));
  pool.on("error", () => {});
  return pool;
}

// Runs work in a transaction, at most three times if the transaction or its connection fails.
export async function retry(pool, work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transaction(pool, work);
    } catch (error) {
      if (attempt === 3 || !isTransient(error)) throw error;
    }
  }
}

async function transaction(pool, work) {
  const client = await pool.connect();
  let failure;
  try {
    await client.query("BEGIN");
    const result = await work(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    // After a failure, the pool closes the connection.
    client.release(failure);
  }
}

// Returns whether an error is a serialization failure, a deadlock or a lost connection.
function isTransient(error) {
  return !(error instanceof pg.DatabaseError) || ["40001", "40P01", "57P01"].includes(error.code);
}
