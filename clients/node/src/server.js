// Client of the HTTP API: finds or starts one pgfresh server for the process.
//
// Under `pgfresh run`, PGFRESH_CONTROL has the address. Otherwise the client starts the binary, which joins or starts
// the background server. The binary's standard input is a pipe, the lifeline: however this process ends, the pipe
// closes, and pgfresh releases the databases of the process. For a server on another machine, the lifeline is a
// connection that the process keeps open.

"use strict";

const { spawn } = require("node:child_process");
const { once } = require("node:events");
const http = require("node:http");
const https = require("node:https");

const { HINT, binaryOnPath, bundledBinary } = require("./binary.js");
const { Trust } = require("./trust.js");

// Arguments of the binary.
const ARGUMENTS = ["serve", "--shared", "--json"];

// Timeout for a response, in milliseconds. Copying a large template takes longest.
const RESPONSE_TIMEOUT = 600_000;

// Timeout for connecting to another machine, in milliseconds.
const CONNECT_TIMEOUT = 30_000;

// How long the binary may take to end after its standard input closes, in milliseconds.
const END_TIMEOUT = 10_000;

class PgfreshError extends Error {
  name = "PgfreshError";
  // Private, because vitest and Node print the properties of an error after its message, which already contains all
  // parts.
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
  #trust;
  #child;

  // `trust` verifies the server's certificate, for `https`. `child` is the process of the binary, or undefined if this
  // process hasn't started the binary.
  constructor(url, secret, holder, { trust, child }) {
    this.#host = url.hostname;
    this.#port = url.port || "443";
    this.#secret = secret;
    this.holder = holder;
    this.#trust = trust;
    this.#child = child;
  }

  get isChild() {
    return this.#child !== undefined;
  }

  // Closes the lifeline, so that pgfresh releases the databases. Does nothing if another process has started the
  // binary.
  end() {
    this.#child?.stdin.end();
  }

  // Environment variables that make another process use this server. pgfresh releases the databases of the other
  // process when the holder of this process ends.
  get environment() {
    const scheme = this.#trust ? "https" : "http";
    const control = `${scheme}://:${encodeURIComponent(this.#secret)}@${this.#host}:${this.#port}`;
    return { PGFRESH_CONTROL: control, ...(this.holder && { PGFRESH_HOLDER: this.holder }) };
  }

  // Sends a request. Resolves to the response body, or to {} if the response has no body. `needs` has the members that
  // the body must have, and their types.
  async request(method, path, body, needs = {}) {
    const [status, text] = await this.#exchange(method, path, body && JSON.stringify(body), read);
    if (status >= 300) throw refusal(status, text);
    const answer = text ? this.#parse(text) : {};
    for (const [name, kind] of Object.entries(needs)) {
      const value = answer[name];
      if ((Array.isArray(value) ? "array" : typeof value) !== kind) throw this.#unreadable(`it has no "${name}"`);
    }
    return this.#trust ? this.#trust.addTo(answer) : answer;
  }

  // Opens the lifeline, and sets the holder, which ends when the lifeline closes.
  async hold() {
    const [status, text] = await this.#exchange("GET", "/v1/hold", undefined, (response) =>
      response.statusCode >= 300 ? read(response) : readHeld(response),
    );
    if (status >= 300) throw refusal(status, text);
    this.holder = this.#parse(text).holder;
    if (typeof this.holder !== "string") throw this.#unreadable("it names no holder");
    return this;
  }

  // Returns the JSON object in a response.
  #parse(text) {
    let answer;
    try {
      answer = JSON.parse(text);
    } catch (cause) {
      throw this.#unreadable(cause.message, cause);
    }
    if (answer === null || typeof answer !== "object" || Array.isArray(answer)) throw this.#unreadable("it is not a JSON object");
    return answer;
  }

  #unreadable(why, cause) {
    return new PgfreshError(`could not read the response of pgfresh at ${this.#host}:${this.#port}: ${why}`, { cause });
  }

  // Sends a request and resolves to the result of `receive` for the response.
  #exchange(method, path, text, receive) {
    const headers = { authorization: `Bearer ${this.#secret}` };
    if (text !== undefined) {
      headers["content-type"] = "application/json";
      headers["content-length"] = Buffer.byteLength(text);
    }
    // Remove the brackets around an IPv6 address, because they are valid only in URLs.
    const to = { host: this.#host.replace(/^\[(.*)\]$/, "$1"), port: this.#port, method, path, headers, agent: false };
    return new Promise((resolve, reject) => {
      const request = this.#trust
        ? https.request({ ...to, timeout: CONNECT_TIMEOUT, ca: this.#trust.roots, rejectUnauthorized: true })
        : http.request({ ...to, timeout: RESPONSE_TIMEOUT });
      const lost = (cause) => reject(this.#lost(cause, request.socket?.authorizationError));
      request.on("response", (response) => receive(response).then(resolve, lost));
      request.on("socket", (socket) => socket.on("secureConnect", () => socket.setTimeout(RESPONSE_TIMEOUT)));
      request.on("timeout", () => request.destroy(new Error("it does not answer")));
      request.on("error", lost);
      request.end(text);
    });
  }

  #lost(cause, untrusted) {
    const hint = untrusted ? UNTRUSTED : this.#trust ? UNREACHABLE : GONE;
    const why = cause.message || cause.code;
    return new PgfreshError(`could not talk to pgfresh at ${this.#host}:${this.#port}: ${why}`, { hint, cause });
  }
}

// Resolves to the status and the complete body of a response.
async function read(response) {
  let text = "";
  for await (const part of response.setEncoding("utf8")) text += part;
  return [response.statusCode, text];
}

// Resolves to the status and the first line of a response. The response stays open, but doesn't keep the process alive.
function readHeld(response) {
  return new Promise((resolve, reject) => {
    let text = "";
    response.setEncoding("utf8").on("data", (part) => {
      text += part;
      if (!text.includes("\n")) return;
      response.socket.setTimeout(0).unref();
      resolve([response.statusCode, text]);
    });
    response.on("end", () => reject(new Error("it closed the connection")));
    response.on("error", reject);
  });
}

// Hint if a server on this machine doesn't respond.
const GONE = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

// Hints for a server on another machine that doesn't respond, or whose certificate can't be verified.
const UNREACHABLE = 'Check the host and the port in PGFRESH_CONTROL, and that "pgfresh serve --listen" runs there.';
const UNTRUSTED = "PGSSLROOTCERT must name the file of the server's root certificate. pgfresh makes a new one at each start.";

// Hints for a binary that is missing, and for a binary that isn't pgfresh.
const SET = "Set PGFRESH_BIN to where pgfresh is, or unset it.";
const CHECK = "Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one.";

// Hints that replace hints about HTTP API options, by remedy.
const HINTS = new Map([
  ["begin_hold", "The server was restarted. Start the tests again."],
  ["close_sessions", "Close them first, or call reset({ closeSessions: true })."],
  ["record", "Lease it with { record: true }, or a budget."],
  ["send_secret", "Check the password in PGFRESH_CONTROL."],
]);

function refusal(status, text) {
  try {
    return errorFrom(JSON.parse(text).error);
  } catch {
    return new PgfreshError(`pgfresh answered with status ${status}`);
  }
}

// Returns the error for an error object from pgfresh. Throws a TypeError if the object has no message.
function errorFrom({ message, code, detail, hint, remedy }) {
  if (typeof message !== "string") throw new TypeError("it has no message");
  return new PgfreshError(message, { code, detail, hint: HINTS.get(remedy) ?? hint, remedy });
}

let found;

// Resolves to the server of this process. The first call finds or starts the server. If this fails, all later calls
// reject with the same error, because a retry could take as long.
function server() {
  found ??= find();
  return found;
}

// Ends the server of this process if this process has started it.
async function endServer() {
  await found?.then((server) => server.end(), () => {});
  found = undefined;
}

// Environment variables that `exportServer` has set, as opposed to a parent process.
let exported = {};

// Finds or starts a server for a test run, and sets the environment variables that lead child processes to this
// server. Watch mode calls this function before each run, because a migration may have changed the template, and a
// user may have stopped the server.
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
    // Close the old lifeline last, because a server without users may stop.
    before?.then((server) => server.end(), () => {});
  }
}

let usedControl;

// Switches to the server that `environment` names. `exportServer` returned these variables in another process.
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

async function fromEnvironment(control) {
  const url = URL.canParse(control) ? new URL(control) : undefined;
  const isRemote = url?.protocol === "https:";
  const secret = url && decoded(url.password);
  // A header can't contain other characters.
  if (!(isRemote || (url?.protocol === "http:" && url.port)) || !/^[!-~]+$/.test(secret ?? "")) {
    throw new PgfreshError("cannot read PGFRESH_CONTROL: it is not http[s]://:SECRET@HOST:PORT");
  }
  const holder = process.env.PGFRESH_HOLDER;
  const trust = isRemote ? readTrust(process.env.PGSSLROOTCERT) : undefined;
  const server = new Server(url, secret, holder, { trust });
  return isRemote && !holder ? server.hold() : server;
}

// Percent-decodes a text. Returns undefined if a percent sign isn't followed by a valid code.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function readTrust(file) {
  try {
    return new Trust(file);
  } catch (cause) {
    const primary = `cannot read the certificate "${file}", which PGSSLROOTCERT names: ${cause.message}`;
    throw new PgfreshError(primary, { cause });
  }
}

async function start() {
  const binary = process.env.PGFRESH_BIN || bundledBinary() || binaryOnPath();
  if (!binary) throw startError({ code: "ENOENT" }, "pgfresh");
  // Ctrl-C doesn't reach a process in another session, so tests can still release databases.
  const child = spawn(binary, ARGUMENTS, { stdio: ["pipe", "pipe", "inherit"], detached: true });
  const line = await firstLine(child, binary);
  // The child and its pipes must not keep this process alive.
  for (const handle of [child, child.stdin, child.stdout]) handle.unref();
  try {
    return parseLine(line, child);
  } catch (cause) {
    await end(child);
    if (cause instanceof PgfreshError) throw cause;
    throw new PgfreshError(`could not read what "${binary}" printed`, { hint: CHECK, cause });
  }
}

// Ends the program. Kills it if it doesn't end, because PGFRESH_BIN may name a program that isn't pgfresh.
async function end(child) {
  child.stdin.end();
  if (!child.pid || child.exitCode !== null || child.signalCode !== null) return;
  child.ref();
  const timer = setTimeout(() => child.kill("SIGKILL"), END_TIMEOUT);
  await once(child, "exit");
  clearTimeout(timer);
}

// Parses the line that the binary prints when it is ready.
function parseLine(line, child) {
  const { error, http_url, password, holder } = JSON.parse(line);
  if (error) throw errorFrom(error);
  return new Server(new URL(http_url), password, holder, { child });
}

function firstLine(child, binary) {
  return new Promise((resolve, reject) => {
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (part) => {
      text += part;
      if (text.includes("\n")) resolve(text);
    });
    child.stdout.on("end", () => {
      if (!text.includes("\n")) end(child);
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

module.exports = { PgfreshError, endServer, exportServer, server, useServer };
