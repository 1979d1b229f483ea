// A server in pgfresh's place, which gives the answers that a test wants.

import { once } from "node:events";
import http from "node:http";

export const SECRET = "5ec7e700000000000000000000000000";

// `answer` gets what was asked for and says status and body; null closes the connection.
export async function counterpart(answer, host = "127.0.0.1") {
  const asked = [];
  const server = http.createServer(async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    const { method, url: path } = request;
    const question = { method, path, ...(text && { body: JSON.parse(text) }) };
    asked.push(question);
    const authorized = request.headers.authorization === `Bearer ${SECRET}`;
    const reply = authorized ? answer(question) : { status: 401 };
    if (reply === null) return request.socket.destroy();
    response.writeHead(reply.status).end(reply.body && JSON.stringify(reply.body));
  });
  server.listen(0, host);
  await once(server, "listening");
  const { port } = server.address();
  const control = `http://:${SECRET}@${host.includes(":") ? `[${host}]` : host}:${port}`;
  return { asked, port, control, close: () => server.close() };
}

// A server that makes up databases and keeps those of failed tests.
export function keeping() {
  let number = 0;
  return counterpart(({ method, path }) => {
    if (method === "POST") {
      const name = `fresh_${++number}`;
      const parts = { url: `url/${name}`, jdbc_url: "", socket_url: "", template: "shop" };
      return { status: 201, body: { name, ...parts } };
    }
    if (path.includes("?failed=true")) {
      return { status: 200, body: { url: `kept/${path.split(/[/?]/).at(-2)}` } };
    }
    return { status: 204 };
  });
}
