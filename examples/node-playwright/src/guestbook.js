// A guest book: a page with its entries and a form for another.

import { createServer } from "node:http";
import pg from "pg";

const escape = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.codePointAt()};`);

async function body(request) {
  let text = "";
  for await (const part of request) text += part;
  return new URLSearchParams(text);
}

// A reset ends the pool's sessions, and the pool may notice this only when it uses one of them.
async function query(pool, ...statement) {
  try {
    return await pool.query(...statement);
  } catch (error) {
    // A connection that broke without a word from the server has no code.
    if (error.code && error.code !== "57P01") throw error;
    return pool.query(...statement);
  }
}

async function respond(pool, request, response) {
  if (request.method === "POST") {
    const form = await body(request);
    await query(pool, "INSERT INTO entry (name, text) VALUES ($1, $2)", [form.get("name"), form.get("text")]);
    response.writeHead(303, { location: "/" }).end();
    return;
  }
  const { rows } = await query(pool, "SELECT name, text FROM entry ORDER BY id DESC");
  const entries = rows.map(({ name, text }) => `<li><b>${escape(name)}</b> ${escape(text)}</li>`);
  response.writeHead(200, { "content-type": "text/html; charset=utf-8" });
  response.end(`<!doctype html><title>Guest book</title>
<h1>Guest book</h1>
<form method="post">
<label>Name <input name="name" required></label>
<label>Text <input name="text" required></label>
<button>Write</button>
</form>
<ul>${entries.join("")}</ul>`);
}

// Starts the app on a port of 127.0.0.1, by default on a free one. Resolves to its URL and to what stops it.
export async function start(databaseUrl, port = 0) {
  const pool = new pg.Pool({ connectionString: databaseUrl });
  // A reset or a restart of the server ends idle connections. The pool opens others.
  pool.on("error", () => {});
  const server = createServer((request, response) => {
    respond(pool, request, response).catch((error) => response.writeHead(500).end(error.message));
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await pool.end();
    },
  };
}
