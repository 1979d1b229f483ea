// Fake pgfresh server whose responses come from a test.

import { once } from "node:events";
import http from "node:http";

export const SECRET = "5ec7e700000000000000000000000000";

// Starts a server. `answer` receives each request and returns the status and the body, or null to close the connection.
export async function counterpart(answer, host = "127.0.0.1") {
  const requests = [];
  const server = http.createServer(async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    const { method, url: path } = request;
    const received = { method, path, ...(text && { body: JSON.parse(text) }) };
    requests.push(received);
    const authorized = request.headers.authorization === `Bearer ${SECRET}`;
    const reply = authorized ? answer(received) : { status: 401 };
    if (reply === null) return request.socket.destroy();
    const isRedirect = reply.status >= 300 && reply.status < 400;
    response.writeHead(reply.status, isRedirect ? { location: "/elsewhere" } : {}).end(reply.body && JSON.stringify(reply.body));
  });
  server.listen(0, host);
  await once(server, "listening");
  const { port } = server.address();
  const control = `http://:${SECRET}@${host.includes(":") ? `[${host}]` : host}:${port}`;
  return { requests, port, control, close: () => server.close() };
}

// Starts a server that names databases `fresh_N` and keeps the databases of failed tests.
export function keeping() {
  let number = 0;
  return counterpart(({ method, path }) => {
    if (method === "POST" && path === "/v1/databases") {
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
