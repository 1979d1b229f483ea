// Tests a server on another machine, which PGFRESH_CONTROL=https://… names. 127.0.0.2 stands for the other machine.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import pg from "pg";

const HOST = "127.0.0.2";
const UNTRUSTED = "PGSSLROOTCERT must name the file of the server's root certificate. pgfresh makes a new one at each start.";
const OPENSSL =
  "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=pgfresh " +
  `-addext subjectAltName=IP:${HOST} -addext basicConstraints=critical,CA:FALSE -keyout server.key -out server.crt`;

const require = createRequire(import.meta.url);
const binary = process.env.PGFRESH_BIN || "pgfresh";
const root = fileURLToPath(new URL("..", import.meta.url));
const timeout = 120_000;

// Starts a server that other machines can use. `restart` restarts the server on the same port.
async function remoteServer(t, ...options) {
  const folder = mkdtempSync(path.join(tmpdir(), "pgfresh-remote-"));
  if (options.length > 0) execFileSync("openssl", OPENSSL.split(" "), { cwd: folder, stdio: "ignore" });
  const remote = { folder, port: 0 };
  const start = async () => {
    const words = ["serve", "--json", "--listen", HOST, "--port", remote.port, ...options];
    const env = { ...process.env, PGFRESH_CONTROL: "", PGFRESH_PASSWORD: "far:away" };
    remote.child = spawn(binary, words, { cwd: folder, env, stdio: ["pipe", "pipe", "inherit"] });
    const [line] = await once(remote.child.stdout.setEncoding("utf8"), "data");
    const { port, root_certificate } = JSON.parse(line);
    Object.assign(remote, { port, root: root_certificate ?? path.join(folder, "server.crt") });
  };
  const stop = async () => {
    remote.child.stdin.end();
    await once(remote.child, "close");
  };
  await start();
  t.after(async () => {
    await stop();
    rmSync(folder, { recursive: true });
  });
  remote.restart = async () => {
    await stop();
    await start();
  };
  remote.environment = () => ({ PGFRESH_CONTROL: `https://:far%3Aaway@${HOST}:${remote.port}`, PGSSLROOTCERT: remote.root });
  return remote;
}

// Loads the client again with the environment variables `environment`, like a new process.
function newClient(environment) {
  for (const name of ["PGFRESH_HOLDER", "PGSSLROOTCERT"]) delete process.env[name];
  Object.assign(process.env, environment);
  for (const module of ["../src/index.js", "../src/server.js"]) delete require.cache[require.resolve(module)];
  return require("../src/index.js");
}

test("a remote database is verified", { timeout }, async (t) => {
  const remote = await remoteServer(t);
  const client = newClient(remote.environment());
  const database = await client.freshDatabase();
  for (const url of [database.url, database.jdbcUrl]) {
    assert.ok(url.includes(`${HOST}:${remote.port}/${database.name}`), url);
    assert.ok(url.includes("sslmode=verify-full&sslrootcert=%2F"), url);
  }
  for (let i = 0; i < 2; i++) {
    const session = new pg.Client(database.url);
    await session.connect();
    assert.ok(session.connection.stream.authorized);
    await session.query("CREATE TABLE made ()");
    await session.end();
    await database.reset();
  }
  await database.release();
});

test("leases end with the remote process", { timeout }, async (t) => {
  const remote = await remoteServer(t);
  const program = `
    (async () => {
      const { freshDatabase } = require("./src/index.js");
      console.log((await freshDatabase()).name);
      process.stdin.resume();
    })();`;
  const child = spawn(process.execPath, ["-e", program], { cwd: root, env: { ...process.env, ...remote.environment(), PGFRESH_HOLDER: "" } });
  const [line] = await once(child.stdout.setEncoding("utf8"), "data");
  newClient(remote.environment());
  const server = await require("../src/server.js").server();
  const look = () => server.request("GET", `/v1/databases/${line.trim()}`);
  assert.equal((await look()).name, line.trim());
  child.kill("SIGKILL");
  await assert.rejects(async () => {
    for (;;) await look().then(() => sleep(50));
  }, /is not leased/);
});

test("a process with a remote server ends by itself", { timeout }, async (t) => {
  const remote = await remoteServer(t);
  const program = 'require("./src/index.js").freshDatabase().then(({ name }) => console.log(name));';
  const child = spawn(process.execPath, ["-e", program], { cwd: root, env: { ...process.env, ...remote.environment(), PGFRESH_HOLDER: "" } });
  assert.deepEqual(await once(child, "close"), [0, null]);
});

test("a remote server refuses wrong certificates", { timeout }, async (t) => {
  const remote = await remoteServer(t);
  const former = path.join(remote.folder, "former.crt");
  copyFileSync(remote.root, former);
  await remote.restart();
  const client = newClient({ ...remote.environment(), PGSSLROOTCERT: former });
  await assert.rejects(client.freshDatabase(), (error) => {
    assert.ok(error.primary.startsWith(`could not talk to pgfresh at ${HOST}:${remote.port}: `), error.message);
    assert.equal(error.hint, UNTRUSTED);
    return true;
  });
  const lacking = newClient({ ...remote.environment(), PGSSLROOTCERT: "/nowhere/root.crt" });
  await assert.rejects(lacking.freshDatabase(), /^PgfreshError: cannot read the certificate "\/nowhere\/root.crt", which PGSSLROOTCERT names: ENOENT/);
});

test("a remote server refuses wrong passwords", { timeout }, async (t) => {
  const remote = await remoteServer(t);
  const client = newClient({ ...remote.environment(), PGFRESH_CONTROL: `https://:near@${HOST}:${remote.port}` });
  const message = "the token is missing or wrong\nHINT:  Check the password in PGFRESH_CONTROL.";
  await assert.rejects(client.freshDatabase(), { message });
});

test("an unreachable remote server is named", { timeout }, async () => {
  const listener = net.createServer().listen(0, HOST);
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  const client = newClient({ PGFRESH_CONTROL: `https://:secret@${HOST}:${port}` });
  const message =
    `could not talk to pgfresh at ${HOST}:${port}: connect ECONNREFUSED ${HOST}:${port}\n` +
    'HINT:  Check the host and the port in PGFRESH_CONTROL, and that "pgfresh serve --listen" runs there.';
  await assert.rejects(client.freshDatabase(), { message });
});

test("a restarted remote server ends the holder", { timeout }, async (t) => {
  const remote = await remoteServer(t, "--tls-cert", "server.crt", "--tls-key", "server.key");
  const client = newClient(remote.environment());
  await client.freshDatabase();
  await remote.restart();
  await assert.rejects(client.freshDatabase(), { hint: "The server was restarted. Start the tests again." });
});
