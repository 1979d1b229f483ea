// The server of pgfresh that this process uses: found or started once, asked over HTTP.
//
// Under `pgfresh run` the environment says where it is. Otherwise the binary is started, which joins or makes a server; its
// standard input is a pipe that we hold. When this process ends, however, the pipe is closed, and what was held for us goes.

"use strict";

const { spawn } = require("node:child_process");
const http = require("node:http");

const { HINT, carried, onPath } = require("./binary.js");

// What the binary is started with.
const ARGUMENTS = ["serve", "--shared", "--json"];

// Milliseconds that an answer may take: a copy of a large template is the longest.
const PATIENCE = 600_000;

class PgfreshError extends Error {
  name = "PgfreshError";
  // No properties of their own: vitest and Node would show them behind the message, which has them.
  #parts;

  constructor(primary, { code, detail, hint, cause } = {}) {
    const more = (detail ? `\nDETAIL:  ${detail}` : "") + (hint ? `\nHINT:  ${hint}` : "");
    super(primary + more, cause && { cause });
    this.#parts = { primary, code, detail, hint };
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
}

class Server {
  #host;
  #port;
  #secret;
  #child;

  // `child` is the binary, where this process has started it.
  constructor(url, secret, holder, child) {
    this.#host = url.hostname;
    this.#port = url.port;
    this.#secret = secret;
    this.holder = holder;
    this.#child = child;
  }

  get isOurs() {
    return this.#child !== undefined;
  }

  // Gives up what is held for us. Only a server that this process has started.
  end() {
    this.#child?.stdin.end();
  }

  // The variables with which another process finds it and holds databases for us.
  get environment() {
    const control = `http://:${encodeURIComponent(this.#secret)}@${this.#host}:${this.#port}`;
    return { PGFRESH_CONTROL: control, ...(this.holder && { PGFRESH_HOLDER: this.holder }) };
  }

  // The answer's body, {} if it has none.
  async ask(method, path, body) {
    let status, text;
    try {
      [status, text] = await this.#exchange(method, path, body && JSON.stringify(body));
    } catch (cause) {
      const where = `${this.#host}:${this.#port}`;
      throw new PgfreshError(`could not talk to pgfresh at ${where}: ${cause.message}`, { hint: GONE, cause });
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
      // An address of IPv6 has its brackets in URLs only.
      const to = { host: this.#host.replace(/^\[(.*)\]$/, "$1"), port: this.#port, method, path, headers, agent: false };
      const request = http.request({ ...to, timeout: PATIENCE }, async (response) => {
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

// What to do where there is no answer.
const GONE = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

// What to do where the binary is another one.
const SET = "Set PGFRESH_BIN to where pgfresh is, or unset it.";
const CHECK = "Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one.";

// What hints say to users of HTTP, and what they say here.
const HINTS = [
  ['set "close_sessions"', "call reset({ closeSessions: true })"],
  ['Lease it with "record": true', "Lease it with { record: true }, or a budget"],
];

function refusal(status, text) {
  try {
    return told(JSON.parse(text).error);
  } catch {
    return new PgfreshError(`pgfresh answered with status ${status}`);
  }
}

// The error that pgfresh writes so.
function told({ message, code, detail, hint }) {
  if (typeof message !== "string") throw new TypeError("it has no message");
  const here = HINTS.reduce((hint, [there, here]) => hint?.replace(there, here), hint);
  return new PgfreshError(message, { code, detail, hint: here });
}

let found;

// The server of this process, which is started if it is needed for the first time. If there is none, all calls reject: what has
// failed, the setup of a template above all, is not tried again for each test.
function server() {
  found ??= find();
  return found;
}

// What `handOn` has set: these name no server of others.
let handed = {};

// Finds or starts a server for a run of the tests, and sets the variables with which other processes find it. In watch mode
// there are several runs: a template may have changed, and a server may have been stopped.
async function handOn() {
  const before = found;
  for (const name of Object.keys(handed)) delete process.env[name];
  [handed, found] = [{}, undefined];
  try {
    const { environment, isOurs } = await server();
    if (isOurs) handed = environment;
    Object.assign(process.env, environment);
    return environment;
  } finally {
    // Not earlier: a server without users may end.
    before?.then((server) => server.end(), () => {});
  }
}

let taken;

// Uses the server of these variables, which a run has handed on, from now on.
function take(environment) {
  if (!environment || environment.PGFRESH_CONTROL === taken) return;
  taken = environment.PGFRESH_CONTROL;
  Object.assign(process.env, environment);
  found = undefined;
}

async function find() {
  const control = process.env.PGFRESH_CONTROL;
  return control ? handedOn(control) : started();
}

function handedOn(control) {
  const url = URL.canParse(control) ? new URL(control) : undefined;
  if (url?.protocol !== "http:" || !url.port || !url.password) {
    throw new PgfreshError("cannot read PGFRESH_CONTROL: it is not http://:SECRET@HOST:PORT");
  }
  return new Server(url, decodeURIComponent(url.password), process.env.PGFRESH_HOLDER);
}

async function started() {
  const binary = process.env.PGFRESH_BIN || carried() || onPath();
  if (!binary) throw notRun({ code: "ENOENT" }, "pgfresh");
  // In a session of its own Ctrl-C does not reach it: tests still give their databases back.
  const child = spawn(binary, ARGUMENTS, { stdio: ["pipe", "pipe", "inherit"], detached: true });
  const line = await firstLine(child, binary);
  // None of it keeps this process from ending.
  for (const handle of [child, child.stdin, child.stdout]) handle.unref();
  try {
    return placeOf(line, child);
  } catch (cause) {
    child.stdin.end();
    if (cause instanceof PgfreshError) throw cause;
    throw new PgfreshError(`could not read what "${binary}" printed`, { hint: CHECK, cause });
  }
}

function placeOf(line, child) {
  const { error, http_url, password, holder } = JSON.parse(line);
  if (error) throw told(error);
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
      reject(notRun(cause, binary));
    });
    child.on("close", (code, signal) => {
      const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
      const hint = "Its own message is on standard error.";
      reject(new PgfreshError(`pgfresh ${how} before it was ready`, { hint }));
    });
  });
}

function notRun(cause, binary) {
  if (cause.code !== "ENOENT") return new PgfreshError(`cannot run "${binary}": ${cause.message}`, { hint: SET, cause });
  if (!process.env.PGFRESH_BIN) return new PgfreshError(`cannot find "${binary}"`, { hint: HINT, cause });
  const primary = `cannot find "${binary}", which PGFRESH_BIN names`;
  return new PgfreshError(primary, { hint: SET, cause });
}

module.exports = { PgfreshError, handOn, server, take };
