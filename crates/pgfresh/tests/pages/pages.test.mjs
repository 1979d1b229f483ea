// HTML pages in a browser: the live page of `pgfresh serve`, and reports.
//
// PGFRESH_BIN is the binary. If PGFRESH_TEST_PICTURES names a folder, the tests save a screenshot of each page in it.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { Browser } from "./browser.mjs";

const run = promisify(execFile);
const { PGFRESH_BIN: pgfresh = "pgfresh", PGFRESH_TEST_PICTURES: pictures } = process.env;

// Width of a small phone, in pixels.
const PHONE = 360;
const SCREENS = [
  { width: PHONE, scheme: "light" }, { width: PHONE, scheme: "dark" },
  { width: 1200, scheme: "light" }, { width: 1200, scheme: "dark" },
];

// Starts a `pgfresh serve` that ends with the test, or by `end`.
async function serve(t) {
  const child = spawn(pgfresh, ["serve", "--json"], { stdio: ["pipe", "pipe", "inherit"] });
  const gone = once(child, "exit");
  const end = async () => {
    child.stdin.end();
    await gone;
  };
  t.after(end);
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  const { http_url: url, password } = JSON.parse(line);
  const ask = async (method, path, body) => {
    const headers = { Authorization: `Bearer ${password}` };
    const answer = await fetch(new URL(path, url), { method, headers, body: body && JSON.stringify(body) });
    assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
    return answer;
  };
  return { url, password, ask, end };
}

async function scratch(t) {
  const folder = await mkdtemp(join(tmpdir(), "pgfresh-pages-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function keep(page, name, { width, scheme }) {
  if (pictures) await writeFile(join(pictures, `${name}-${width}-${scheme}.png`), await page.picture());
}

// Called within a page: returns the excess width on a screen of this width, and elements beyond it that do not scroll separately.
function beyond(wide) {
  const scrolls = (element) => element.closest(".scroll, svg");
  const names = [...document.body.querySelectorAll("*")].filter(
    (element) => !scrolls(element) && element.getBoundingClientRect().right > wide + 0.5,
  );
  const all = document.scrollingElement.scrollWidth;
  return { by: Math.max(0, all - wide), what: names.map((element) => element.outerHTML.slice(0, 100)) };
}

// Called within a page: returns texts whose contrast to their background is less than 4.5 to 1. Source: WCAG 2.2, 1.4.3.
function faint() {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => part / 255).map(
      (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4),
    );
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (top, ground, share) => top.slice(0, 3).map((part, at) => part * share + ground[at] * (1 - share));
  // A page without a background has the browser's, which follows the colour scheme if the page allows it.
  const probe = document.body.appendChild(document.createElement("div"));
  probe.style.backgroundColor = "Canvas";
  const canvasColour = rgba(getComputedStyle(probe).backgroundColor);
  probe.remove();
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const words = texts.currentNode.textContent.trim(), holder = texts.currentNode.parentElement;
    if (!/\w/.test(words) || holder.closest("svg, script, style, noscript") || !holder.checkVisibility()) continue;
    let ground = null, opacity = 1;
    for (let at = holder; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      opacity *= Number(style.opacity);
      const colour = rgba(style.backgroundColor);
      if (!ground && colour[3] === 255) ground = colour;
    }
    ground ??= canvasColour;
    const [one, other] = [over(rgba(getComputedStyle(holder).color), ground, opacity), ground].map(light);
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)}: ${words.slice(0, 60)}`);
  }
  return found;
}

async function assertReadable(page, screen) {
  assert.deepEqual(await page.ask(beyond, screen.width), { by: 0, what: [] }, JSON.stringify(screen));
  assert.deepEqual(await page.ask(faint), [], JSON.stringify(screen));
}

test("the live page shows the server and its leases as they come and go", async (t) => {
  const [server, browser] = await Promise.all([serve(t), Browser.open(t)]);
  const page = await browser.page(`${server.url}?token=${server.password}`);
  await page.until(() => document.body.className === "live" && document.querySelector("#about").textContent !== "");
  const { version } = await (await server.ask("GET", "v1/status")).json();
  const shown = (name) => page.ask((name) => document.querySelector(name).innerText, name);
  assert.match(await shown("#about"), new RegExp(`^${version.replaceAll(".", "\\.")}, up \\d`));
  assert.match(await shown("#templates"), /template1/);
  assert.match(await shown("#none"), /No database is leased/);
  assert.equal(await page.ask(() => location.search), "", "the secret is still in the address");

  await page.ask(() => { window.before = true; });
  const has = (name) => [...document.querySelectorAll("#leases tr")].some((row) => row.dataset.key === name);
  await server.ask("POST", "v1/databases", { name: "orders" });
  await page.until(has, "orders");
  assert.equal(await page.ask(() => document.title), "1 leased · pgfresh");
  await server.ask("DELETE", "v1/databases/orders");
  await page.until((name) => ![...document.querySelectorAll("#leases tr")].some((row) => row.dataset.key === name),
    "orders");
  assert.equal(await page.ask(() => window.before), true, "it was loaded again");

  const { origin } = new URL(server.url);
  assert.deepEqual([...new Set(page.requests.map((url) => new URL(url).origin))], [origin]);
  assert.deepEqual(page.requests.slice(1), [`${origin}/v1/events`], "it asks for more than its events");
  assert.deepEqual(page.complaints, []);
});

test("the live page can be read on a phone, light and dark", async (t) => {
  const [server, browser] = await Promise.all([serve(t), Browser.open(t)]);
  // These are the longest names, with and without an opportunity for a line break.
  const names = ["m".repeat(63), "a test of orders ".repeat(3).trim(), "orders"];
  for (const name of names) await server.ask("POST", "v1/databases", { name });
  for (const screen of SCREENS) {
    const page = await browser.page(`${server.url}?token=${server.password}`, screen);
    await page.until((count) => document.querySelectorAll("#leases tr").length === count, names.length);
    await assertReadable(page, screen);
    await keep(page, "live", screen);
  }
});

test("the live page works behind an address with the secret in its path, and says when the server is gone", async (t) => {
  const [server, browser] = await Promise.all([serve(t), Browser.open(t)]);
  const page = await browser.page(`${server.url}token/${server.password}/`);
  await page.until(() => document.body.className === "live");
  assert.deepEqual(page.complaints, []);
  await server.end();
  await page.until(() => document.body.className === "lost");
  assert.match(await page.ask(() => document.querySelector("#state").innerText), /connection lost, trying again/);
});

test("the report of doctor is one file that can be read on a phone, light and dark", async (t) => {
  const [folder, browser] = await Promise.all([scratch(t), Browser.open(t)]);
  const file = join(folder, "doctor.html");
  await run(pgfresh, ["doctor", "--quick", "--soak", "3s", "--report", file]);
  for (const screen of SCREENS) {
    const page = await browser.page(pathToFileURL(file).href, screen);
    assert.match(await page.ask(() => document.body.innerText), /Commits of one row/);
    assert.equal(await page.ask(() => document.querySelectorAll("svg").length), 3, "a soak, syncs and commits");
    await assertReadable(page, screen);
    await keep(page, "doctor", screen);
    assert.deepEqual(page.requests, [pathToFileURL(file).href], "it asks for something else");
    assert.deepEqual(page.complaints, []);
  }
});

test("the report of a profile is one file that can be read on a phone, light and dark", async (t) => {
  const [folder, browser] = await Promise.all([scratch(t), Browser.open(t)]);
  const file = join(folder, "profile.html");
  const sql = "CREATE TABLE some_table (some_column text); SELECT pg_sleep(1.5); TRUNCATE some_table";
  const words = ["run", "--quiet", "--profile", "--report", file, "--", "psql", "-XAtqc", sql];
  await run(pgfresh, words);
  for (const screen of SCREENS) {
    const page = await browser.page(pathToFileURL(file).href, screen);
    assert.match(await page.ask(() => document.body.innerText), /pg_sleep/);
    assert.ok(await page.ask(() => document.querySelectorAll("svg rect title").length) > 0, "no picture");
    await assertReadable(page, screen);
    await keep(page, "profile", screen);
    assert.deepEqual(page.requests, [pathToFileURL(file).href], "it asks for something else");
    assert.deepEqual(page.complaints, []);
  }
});
