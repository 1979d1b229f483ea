// Tests node-postgres through the gateway at DATABASE_URL. Each function checks one guarantee.

const assert = require('node:assert');
const { once } = require('node:events');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const { Client, Pool, Query } = require('pg');
const { from, to } = require('pg-copy-streams');

const url = new URL(process.env.DATABASE_URL);
url.pathname = '/node';
const connectionString = url.href;
const large = 64 << 20;

async function connect(options = {}) {
  const client = new Client({ connectionString, ...options });
  await client.connect();
  return client;
}

async function value(client, text, values) {
  const { rows } = await client.query({ text, values, rowMode: 'array' });
  return rows[0][0];
}

async function anyNameIsADatabase(client) {
  assert.equal(await value(client, 'SELECT current_database()'), 'node');
  const other = await connect({ options: '-c work_mem=123kB' });
  assert.equal(await value(other, 'SHOW work_mem'), '123kB');
  await other.end();
}

async function statementsArePrepared(client) {
  for (let number = 0; number < 100; number++) {
    const { rows } = await client.query({ name: 'next', text: 'SELECT $1::int + 1 AS n', values: [number] });
    assert.equal(rows[0].n, number + 1);
  }
  assert.equal(await value(client, 'SELECT count(*)::int FROM pg_prepared_statements'), 1);
}

async function rowsAreCopiedBothWays(client) {
  await client.query('CREATE TEMP TABLE t (n int)');
  const lines = Array.from({ length: 100_000 }, (_, number) => `${number}\n`);
  await pipeline(Readable.from(lines), client.query(from('COPY t FROM STDIN')));
  let out = '';
  for await (const chunk of client.query(to('COPY (SELECT n FROM t ORDER BY n) TO STDOUT'))) out += chunk;
  assert.equal(out, lines.join(''));
}

async function aStatementIsCancelled(client) {
  const query = client.query(new Query('SELECT pg_sleep(60)'));
  const ended = new Promise((resolve) => query.on('error', resolve).on('end', resolve));
  const other = await connect();
  const running = 'SELECT count(*)::int FROM pg_stat_activity WHERE pid = $1 AND wait_event = $2';
  while ((await value(other, running, [client.processID, 'PgSleep'])) === 0);
  // The driver sends a cancel request on another connection.
  new Client({ connectionString }).cancel(client, query);
  assert.equal((await ended)?.code, '57014');
  await other.end();
  assert.equal(await value(client, 'SELECT 1'), 1);
}

async function queriesNeedNoTurns(client) {
  const numbers = Array.from({ length: 500 }, (_, number) => number);
  const answers = await Promise.all(numbers.map((number) => value(client, 'SELECT $1::int', [number])));
  assert.deepEqual(answers, numbers);
}

async function newsComesUnasked(client) {
  await client.query('LISTEN news');
  const speaker = await connect();
  const news = once(client, 'notification');
  await speaker.query("NOTIFY news, 'X'");
  const [{ channel, payload, processId }] = await news;
  assert.deepEqual([channel, payload, processId], ['news', 'X', speaker.processID]);
  await speaker.end();
}

async function errorsAreRecoveredFrom(client) {
  for (const [sql, code] of [['SELECT 1/0', '22012'], ['SELECT FROM nowhere', '42P01'], ['SELEC', '42601']]) {
    await client.query('BEGIN');
    await assert.rejects(client.query({ text: sql, values: [] }), { code });
    await assert.rejects(client.query('SELECT 1'), { code: '25P02' });
    await client.query('ROLLBACK');
  }
  assert.equal(await value(client, 'SELECT 1'), 1);
}

async function valuesMayBeLarge(client) {
  const bytes = Buffer.alloc(large, 'pgfresh');
  assert.ok(bytes.equals(await value(client, 'SELECT $1::bytea', [bytes])));
}

async function aPoolReuses() {
  const pool = new Pool({ connectionString, max: 8 });
  const numbers = Array.from({ length: 200 }, (_, number) => number);
  const answers = await Promise.all(numbers.map((number) => pool.query('SELECT $1::int AS n', [number])));
  assert.deepEqual(answers.map((answer) => answer.rows[0].n), numbers);
  await pool.end();
}

async function main() {
  for (const promise of [
    anyNameIsADatabase,
    statementsArePrepared,
    rowsAreCopiedBothWays,
    aStatementIsCancelled,
    queriesNeedNoTurns,
    newsComesUnasked,
    errorsAreRecoveredFrom,
    valuesMayBeLarge,
    aPoolReuses,
  ]) {
    const client = await connect();
    await promise(client);
    await client.end();
    console.log(promise.name);
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
