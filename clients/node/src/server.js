// Client of the HTTP API: finds or starts one pgfresh server for the process.
//
// Under `pgfresh run`, PGFRESH_CONTROL has the address. Otherwise the client starts the binary, which joins or starts the background
// server. The binary's standard input is a pipe, the lifeline: when this process ends in any way, the pipe closes, and pgfresh
// releases the databases of the process.

"use strict";

const { spawn } = require("node:child_process");
const http = require("node:http");

const { HINT, binaryOnPath, bundledBinary } = require("./binary.js");

// Arguments of the binary.
const ARGUMENTS = ["serve", "--shared", "--json"];

// Timeout for a response, in milliseconds. The copy of a large template takes longest.
const RESPONSE_TIMEOUT = 600_000;

class PgfreshError extends Error {
  name = "PgfreshError";
  // Private, because vitest and Node print the properties of an error behind its message, which has all parts.
  #parts;

  constructor(primary, { code, detail, hint, remedy, cause } = {}) {
    const more = (detail ? `\nDETAIL:  ${detail}` : "") + (hint ? `\nHINT:  ${hint}` : "");
    super(primary + more, cause && { cause });
    this.#parts = { primary, code, detail, hint, remedy };
  }

  get primary() {
    return this.#parts.primary;
  }

  get code() {
    return this.#parts.code;
  }

  get detail() {
    return this.#parts.detail;
  }

  get hint() {
    return this.#parts.hint;
  }

  get remedy() {
    return this.#parts.remedy;
  }
}

class Server {
  #host;
  #port;
  #secret;
  #child;

  // `child` is the binary if this process has started it, otherwise undefined.
  constructor(url, secret, holder, child) {
    this.#host = url.hostname;
    this.#port = url.port;
    this.#secret = secret;
    this.holder = holder;
    this.#child = child;
  }

  get isChild() {
    return this.#child !== undefined;
  }

  // Closes the lifeline, so that pgfresh releases the databases. Does nothing if another process started the binary.
  end() {
    this.#child?.stdin.end();
  }

  // Variables with which another process uses this server. Its databases end with the holder of this process.
  get environment() {
    const control = `http://:${encodeURIComponent(this.#secret)}@${this.#host}:${this.#port}`;
    return { PGFRESH_CONTROL: control, ...(this.holder && { PGFRESH_HOLDER: this.holder }) };
  }

  // Sends a request. Resolves to the body of the response, or to {} if it has none.
  async request(method, path, body) {
    let status, text;
    try {
      [status, text] = await this.#exchange(method, path, body && JSON.stringify(body));
    } catch (cause) {
      const address = `${this.#host}:${this.#port}`;
      throw new PgfreshError(`could not talk to pgfresh at ${address}: ${cause.message}`, { hint: GONE, cause });
    }
    if (status >= 300) throw refusal(status, text);
    return text ? JSON.parse(text) : {};
  }

  #exchange(method, path, text) {
    const headers = { authorization: `Bearer ${this.#secret}` };
    if (text !== undefined) {
      headers["content-type"] = "application/json";
      headers["content-length"] = Buffer.byteLength(text);
    }
    return new Promise((resolve, reject) => {
      // Only URLs have the brackets of an IPv6 address.
      const to = { host: this.#host.replace(/^\[(.*)\]$/, "$1"), port: this.#port, method, path, headers, agent: false };
      const request = http.request({ ...to, timeout: RESPONSE_TIMEOUT }, async (response) => {
        try {
          let answer = "";
          for await (const part of response.setEncoding("utf8")) answer += part;
          resolve([response.statusCode, answer]);
        } catch (error) {
          reject(error);
        }
      });
      request.on("timeout", () => request.destroy(new Error("it does not answer")));
      request.on("error", reject);
      request.end(text);
    });
  }
}

// Hint if there is no response.
const GONE = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

// Hints if the binary is missing or another program.
const SET = "Set PGFRESH_BIN to where pgfresh is, or unset it.";
const CHECK = "Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one.";

// Hints in place of those that name options of the HTTP API, by remedy.
const HINTS = new Map([
  ["close_sessions", "Close them first, or call reset({ closeSessions: true })."],
  ["record", "Lease it with { record: true }, or a budget."],
]);

function refusal(status, text) {
  try {
    return errorFrom(JSON.parse(text).error);
  } catch {
    return new PgfreshError(`pgfresh answered with status ${status}`);
  }
}

// Returns the error for an error object of pgfresh. Throws a TypeError if the object has no message.
function errorFrom({ message, code, detail, hint, remedy }) {
  if (typeof message !== "string") throw new TypeError("it has no message");
  return new PgfreshError(message, { code, detail, hint: HINTS.get(remedy) ?? hint, remedy });
}

let found;

// Resolves to the server of this process. The first call finds or starts it. If that fails, all later calls reject with the same
// error, because another start could take as long.
function server() {
  found ??= find();
  return found;
}

// Variables that `exportServer` has set. They do not come from a parent process.
let exported = {};

// Finds or starts a server for a run of the tests, and sets the variables with which child processes find it. Watch mode calls it
// before each run, because a migration may have changed the template, and a user may have stopped the server.
async function exportServer() {
  const before = found;
  for (const name of Object.keys(exported)) delete process.env[name];
  [exported, found] = [{}, undefined];
  try {
    const { environment, isChild } = await server();
    if (isChild) exported = environment;
    Object.assign(process.env, environment);
    return environment;
  } finally {
    // Close the old lifeline last, because a server without users may end.
    before?.then((server) => server.end(), () => {});
  }
}

let usedControl;

// Switches to the server of these variables, which `exportServer` returned in another process.
function useServer(environment) {
  if (!environment || environment.PGFRESH_CONTROL === usedControl) return;
  usedControl = environment.PGFRESH_CONTROL;
  Object.assign(process.env, environment);
  found = undefined;
}

async function find() {
  const control = process.env.PGFRESH_CONTROL;
  return control ? fromEnvironment(control) : start();
}

function fromEnvironment(control) {
  const url = URL.canParse(control) ? new URL(control) : undefined;
  if (url?.protocol !== "http:" || !url.port || !url.password) {
    throw new PgfreshError("cannot read PGFRESH_CONTROL: it is not http://:SECRET@HOST:PORT");
  }
  return new Server(url, decodeURIComponent(url.password), process.env.PGFRESH_HOLDER);
}

async function start() {
  const binary = process.env.PGFRESH_BIN || bundledBinary() || binaryOnPath();
  if (!binary) throw startError({ code: "ENOENT" }, "pgfresh");
  // Ctrl-C does not reach a process in another session, so that tests can still release databases.
  const child = spawn(binary, ARGUMENTS, { stdio: ["pipe", "pipe", "inherit"], detached: true });
  const line = await firstLine(child, binary);
  // The child and its pipes must not keep this process alive.
  for (const handle of [child, child.stdin, child.stdout]) handle.unref();
  try {
    return parseLine(line, child);
  } catch (cause) {
    child.stdin.end();
    if (cause instanceof PgfreshError) throw cause;
    throw new PgfreshError(`could not read what "${binary}" printed`, { hint: CHECK, cause });
  }
}

// Parses the line that the binary prints when it is ready.
function parseLine(line, child) {
  const { error, http_url, password, holder } = JSON.parse(line);
  if (error) throw errorFrom(error);
  return new Server(new URL(http_url), password, holder, child);
}

function firstLine(child, binary) {
  return new Promise((resolve, reject) => {
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (part) => {
      text += part;
      if (text.includes("\n")) resolve(text);
    });
    child.on("error", (cause) => {
      reject(startError(cause, binary));
    });
    child.on("close", (code, signal) => {
      const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
      const hint = "Its own message is on standard error.";
      reject(new PgfreshError(`pgfresh ${how} before it was ready`, { hint }));
    });
  });
}

function startError(cause, binary) {
  if (cause.code !== "ENOENT") return new PgfreshError(`cannot run "${binary}": ${cause.message}`, { hint: SET, cause });
  if (!process.env.PGFRESH_BIN) return new PgfreshError(`cannot find "${binary}"`, { hint: HINT, cause });
  const primary = `cannot find "${binary}", which PGFRESH_BIN names`;
  return new PgfreshError(primary, { hint: SET, cause });
}

module.exports = { PgfreshError, exportServer, server, useServer };
