// Controls headless Chromium through its debugging pipe, so that the tests don't need other software.
//
// Messages are JSON followed by a zero byte. Chromium reads requests from descriptor 3, and writes its messages to 4.
// Source: the Chrome DevTools Protocol, and Chromium's --remote-debugging-pipe.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

// Timeout for each wait, in ms.
const PATIENCE = 120_000;
// Poll interval while a test waits for a change, in ms.
const STEP = 50;

// Error that Chromium returns for a request, for example because the page has changed during an evaluation.
class Refusal extends Error {}

export class Browser {
  #child;
  #home;
  #next = 1;
  #asked = new Map();
  #listeners = new Map();

  // Starts a browser, which ends with the test.
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
      // Chromium refuses to run in a sandbox as root.
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

  // Opens `url` in a new profile, with the screen width `width` in pixels and the color scheme `scheme`. If `media` is
  // "print", the page looks as if printed. Unless `scripts` is true, the browser doesn't run scripts.
  async page(url, { width = 1200, scheme = "light", media = "", scripts = true } = {}) {
    const { browserContextId } = await this.call("Target.createBrowserContext");
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank", browserContextId });
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    const close = () => this.call("Target.disposeBrowserContext", { browserContextId });
    const page = new Page((method, params) => this.call(method, params, sessionId), close);
    this.#listeners.set(sessionId, (method, params) => page.hear(method, params));
    await page.open(url, { width, scheme, media, scripts });
    return page;
  }

  async #close() {
    if (this.#child?.pid && this.#child.exitCode === null) {
      const gone = once(this.#child, "exit");
      // Chromium might end before it responds.
      this.call("Browser.close").catch(() => {});
      await within(gone, "the end of the browser").catch(() => this.#child.kill("SIGKILL"));
    }
    if (this.#home) await rm(this.#home, { recursive: true, force: true, maxRetries: 10 });
  }
}

class Page {
  #call;
  // URLs of all requests, and the console's warnings and errors.
  requests = [];
  complaints = [];

  constructor(call, close) {
    this.#call = call;
    this.close = close;
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

  async open(url, { width, scheme, media, scripts }) {
    await Promise.all(["Page", "Network", "Runtime", "Log"].map((domain) => this.#call(`${domain}.enable`)));
    const mobile = width < 600;
    await this.#call("Emulation.setDeviceMetricsOverride", { width, height: 800, deviceScaleFactor: 1, mobile });
    const features = [{ name: "prefers-color-scheme", value: scheme }];
    await this.#call("Emulation.setEmulatedMedia", { media, features });
    await this.#call("Emulation.setScriptExecutionDisabled", { value: !scripts });
    const { errorText } = await this.#call("Page.navigate", { url });
    if (errorText) throw new Error(`could not open ${url}: ${errorText}`);
    await this.until(() => document.readyState === "complete");
  }

  // Calls the function `look` in the page and returns its result. `argument` is the only outside value that it can use.
  async ask(look, argument = null) {
    const expression = `(${look})(${JSON.stringify(argument)})`;
    const { result, exceptionDetails } = await this.#call("Runtime.evaluate", {
      expression, returnByValue: true, awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // Types a key, such as "Tab" or "Enter".
  async press(key) {
    const windowsVirtualKeyCode = { Tab: 9, Enter: 13 }[key];
    const text = key === "Enter" ? "\r" : undefined;
    for (const type of ["keyDown", "keyUp"]) {
      await this.#call("Input.dispatchKeyEvent", { type, key, code: key, windowsVirtualKeyCode, text });
    }
  }

  // Waits until the function `look` returns true in the page, or in a page that replaces it.
  async until(look, argument = null) {
    const end = Date.now() + PATIENCE;
    while (!(await this.ask(look, argument).catch(unlessRefused))) {
      if (Date.now() > end) throw new Error(`never true: ${look}\n${await this.ask(() => document.body.innerText)}`);
      await new Promise((resolve) => setTimeout(resolve, STEP));
    }
  }

  // Returns the whole page as a PNG.
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
