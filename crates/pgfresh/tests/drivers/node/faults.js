// Prints how a statement fails through node-postgres and its pool.
//
// Each input line contains the URL, the isolation level (or "none" to run without a transaction), a first statement,
// and the failing statement. The program prints "ready" before the failing statement and waits for another line, so
// that the test can provoke the error.

const { setTimeout: sleep } = require('node:timers/promises');
const readline = require('node:readline');
const { Client, Pool } = require('pg');

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function seen(name, action) {
  try {
    await action();
    console.log(name, 'ok');
  } catch (error) {
    const { code, severity, detail, hint } = error;
    console.log(name, error.constructor.name, code, severity, detail, hint, error.message);
  }
}

async function wait() {
  console.log('ready');
  await lines.next();
}

async function connect(url) {
  const client = new Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  await client.end();
}

async function run(client, level, first, failing) {
  if (level === 'none') {
    await client.query(first);
    await wait();
    await client.query({ name: 'failing', text: failing });
    return;
  }
  await client.query(`BEGIN ISOLATION LEVEL ${level}`);
  try {
    await client.query(first);
    await wait();
    await client.query({ name: 'failing', text: failing });
    if (failing !== 'COMMIT') await client.query('COMMIT');
  } catch (error) {
    await seen('rollback', () => client.query('ROLLBACK'));
    throw error;
  }
}

async function play(url, level, first, failing) {
  const pool = new Pool({ connectionString: url, max: 1 });
  pool.on('error', (error) => console.log('pool error', error.code, error.message));
  const client = await pool.connect();
  client.on('error', (error) => console.log('client error', error.code, error.message));
  let failed;
  await seen(failing === 'CONNECT' ? 'connect' : 'statement', async () => {
    try {
      if (failing !== 'CONNECT') return await run(client, level, first, failing);
      await wait();
      return await connect(url);
    } catch (error) {
      failed = error;
      throw error;
    }
  });
  // The driver reports the end of the connection slightly later than the error.
  await sleep(100);
  await seen('select', () => client.query('SELECT 1'));
  // Without an argument, the pool itself determines whether it keeps the connection.
  client.release();
  const next = await pool.connect();
  console.log('pool', next === client ? 'kept' : 'replaced', failed !== undefined);
  await seen('next', () => next.query('SELECT 1'));
  next.release();
  await pool.end();
  console.log('done');
}

async function main() {
  for (;;) {
    const { value, done } = await lines.next();
    if (done) return;
    await play(...value.split('\t'));
  }
}

main();
