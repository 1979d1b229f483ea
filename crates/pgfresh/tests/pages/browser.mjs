// A Chromium without a window, led through the pipe that it offers for that: nothing has to be installed beside it.
//
// Messages are JSON, each ended by a zero byte: ours on its descriptor 3, its own on 4.
// Source: the Chrome DevTools Protocol, and Chromium's --remote-debugging-pipe.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

// How long anything may take before it is called a failure.
const PATIENCE = 30_000;
// Between two looks at a page that is to change.
const STEP = 50;

// What Chromium answers instead of a result; of a look at a page: that the page went elsewhere meanwhile.
class Refusal extends Error {}

export class Browser {
  #child;
  #home;
  #next = 1;
  #asked = new Map();
  #listeners = new Map();

  // Starts one; it ends with the test.
  static async open(test) {
    const browser = new Browser();
    test.after(() => browser.#close());
    await browser.#start(process.env.PGFRESH_TEST_CHROMIUM ?? "chromium");
    return browser;
  }

  async #start(program) {
    this.#home = await mkdtemp(join(tmpdir(), "pgfresh-pages-"));
    const options = [
      "--headless=new", "--remote-debugging-pipe", `--user-data-dir=${this.#home}`, "--no-first-run", "--disable-gpu",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad",
      "--disable-dev-shm-usage", "--hide-scrollbars",
      // Root may not have a sandbox.
      ...(process.getuid() === 0 ? ["--no-sandbox"] : []),
    ];
    const env = { ...process.env, HOME: this.#home, XDG_CONFIG_HOME: this.#home, XDG_CACHE_HOME: this.#home };
    const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
    this.#child = spawn(program, [...options, "about:blank"], { env, stdio });
    await once(this.#child, "spawn");
    this.#child.stdio[3].on("error", () => {});
    let text = "";
    this.#child.stdio[4].setEncoding("utf8").on("data", (part) => {
      const messages = (text + part).split("\0");
      text = messages.pop();
      messages.forEach((message) => this.#hear(JSON.parse(message)));
    });
    this.#child.once("exit", () => {
      this.#asked.forEach(({ reject }) => reject(new Error(`${program} went away`)));
    });
  }

  #hear({ id, sessionId, method, params, result, error }) {
    if (method) return this.#listeners.get(sessionId)?.(method, params);
    const { resolve, reject } = this.#asked.get(id);
    this.#asked.delete(id);
    if (error) reject(new Refusal(error.message));
    else resolve(result);
  }

  call(method, params = {}, sessionId = undefined) {
    const id = this.#next++;
    this.#child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    const answer = new Promise((resolve, reject) => this.#asked.set(id, { resolve, reject }));
    return within(answer, `an answer to ${method}`);
  }

  // Opens an address in a profile of its own, with a screen so many pixels wide and in that scheme of colours.
  async page(url, { width = 1200, scheme = "light" } = {}) {
    const { browserContextId } = await this.call("Target.createBrowserContext");
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank", browserContextId });
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page((method, params) => this.call(method, params, sessionId));
    this.#listeners.set(sessionId, (method, params) => page.hear(method, params));
    await page.open(url, width, scheme);
    return page;
  }

  async #close() {
    if (this.#child?.pid && this.#child.exitCode === null) {
      const gone = once(this.#child, "exit");
      // It may go before it answers.
      this.call("Browser.close").catch(() => {});
      await within(gone, "the end of the browser").catch(() => this.#child.kill("SIGKILL"));
    }
    if (this.#home) await rm(this.#home, { recursive: true, force: true, maxRetries: 10 });
  }
}

class Page {
  #call;
  // The addresses of all requests, and what the console would show that is no mere information.
  requests = [];
  complaints = [];

  constructor(call) {
    this.#call = call;
  }

  hear(method, params) {
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
    if (method === "Network.webSocketCreated") this.requests.push(params.url);
    if (method === "Runtime.exceptionThrown") this.complaints.push(params.exceptionDetails.exception?.description);
    if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
      this.complaints.push(params.args.map(({ value, description }) => value ?? description).join(" "));
    }
    if (method === "Log.entryAdded" && params.entry.level !== "info") this.complaints.push(params.entry.text);
  }

  async open(url, width, scheme) {
    await Promise.all(["Page", "Network", "Runtime", "Log"].map((domain) => this.#call(`${domain}.enable`)));
    const mobile = width < 600;
    await this.#call("Emulation.setDeviceMetricsOverride", { width, height: 800, deviceScaleFactor: 1, mobile });
    const features = [{ name: "prefers-color-scheme", value: scheme }];
    await this.#call("Emulation.setEmulatedMedia", { features });
    const { errorText } = await this.#call("Page.navigate", { url });
    if (errorText) throw new Error(`could not open ${url}: ${errorText}`);
    await this.until(() => document.readyState === "complete");
  }

  // What a function returns that is called within the page. It sees nothing from outside but `argument`.
  async ask(look, argument = null) {
    const expression = `(${look})(${JSON.stringify(argument)})`;
    const { result, exceptionDetails } = await this.#call("Runtime.evaluate", {
      expression, returnByValue: true, awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // Waits until a function is true within the page, or within the one that takes its place.
  async until(look, argument = null) {
    const end = Date.now() + PATIENCE;
    while (!(await this.ask(look, argument).catch(unlessRefused))) {
      if (Date.now() > end) throw new Error(`never true: ${look}\n${await this.ask(() => document.body.innerText)}`);
      await new Promise((resolve) => setTimeout(resolve, STEP));
    }
  }

  // The whole page as a PNG.
  async picture() {
    const { data } = await this.#call("Page.captureScreenshot", { captureBeyondViewport: true });
    return Buffer.from(data, "base64");
  }
}

function unlessRefused(error) {
  if (!(error instanceof Refusal)) throw error;
  return false;
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come within ${PATIENCE / 1000} s`)), PATIENCE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
