// Tests HTML pages in a browser: the live page of `pgfresh serve`, and reports.
//
// PGFRESH_BIN is the binary's path. If PGFRESH_TEST_PICTURES is set, the tests save a screenshot of each page in that
// folder.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { Browser } from "./browser.mjs";

const run = promisify(execFile);
const { PGFRESH_BIN: pgfresh = "pgfresh", PGFRESH_TEST_PICTURES: pictures } = process.env;

// Widths of a small phone, a phone and a laptop, in pixels.
const WIDTHS = [360, 400, 1280];
const SCREENS = [
  { width: 360, scheme: "light" },
  { width: 400, scheme: "light" }, { width: 400, scheme: "dark" },
  { width: 1280, scheme: "light" }, { width: 1280, scheme: "dark" },
];
// Width of a sheet of paper without its margins, in pixels.
const PAPER = 718;

// Starts `pgfresh serve`, which ends with the test or when `end` is called.
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

// Runs in the page. Returns how far the page exceeds the screen width `wide`, and the elements beyond it that don't
// scroll separately.
function beyond(wide) {
  const scrolls = (element) => element.closest(".scroll, svg");
  const names = [...document.body.querySelectorAll("*")].filter(
    (element) => !scrolls(element) && element.getBoundingClientRect().right > wide + 0.5,
  );
  const all = document.scrollingElement.scrollWidth;
  return { by: Math.max(0, all - wide), what: names.map((element) => element.outerHTML.slice(0, 100)) };
}

// Runs in the page. Returns texts whose contrast to their background is less than 4.5 to 1. Source: WCAG 2.2, 1.4.3.
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
  // A page without a background has the browser's background, which follows the color scheme if the page allows it.
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
  // These are the longest names, with and without a place for a line break.
  const names = ["m".repeat(63), "a test of orders ".repeat(3).trim(), "orders"];
  for (const name of names) await server.ask("POST", "v1/databases", { name });
  for (const screen of SCREENS) {
    const page = await browser.page(`${server.url}?token=${server.password}`, screen);
    await page.until((count) => document.querySelectorAll("#leases tr").length === count, names.length);
    await assertReadable(page, screen);
    await keep(page, "live", screen);
    await page.close();
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

// Opens a report on each screen, and asserts that it is readable and doesn't request anything else.
async function assertReport(browser, file, name, check) {
  for (const screen of [...SCREENS, { width: PAPER, scheme: "light", media: "print" }]) {
    const page = await browser.page(pathToFileURL(file).href, screen);
    await check(page);
    await assertReadable(page, screen);
    await keep(page, name, { ...screen, scheme: screen.media ?? screen.scheme });
    assert.deepEqual(page.requests, [pathToFileURL(file).href], "it asks for something else");
    assert.deepEqual(page.complaints, []);
    await page.close();
  }
}

test("the report of doctor is one file that can be read on a phone, light and dark", async (t) => {
  const [folder, browser] = await Promise.all([scratch(t), Browser.open(t)]);
  const file = join(folder, "doctor.html");
  await run(pgfresh, ["doctor", "--quick", "--soak", "3s", "--report", file]);
  await assertReport(browser, file, "doctor", async (page) => {
    assert.match(await page.ask(() => document.body.innerText), /Commits of one row/);
    assert.equal(await page.ask(() => document.querySelectorAll("figure").length), 3, "a soak, syncs and commits");
    assert.ok(await page.ask(() => document.querySelectorAll(".tile").length) >= 4, "too few tiles");
  });
});

test("the report of a comparison is one file that can be read on a phone, light and dark", async (t) => {
  const [folder, browser] = await Promise.all([scratch(t), Browser.open(t)]);
  const file = join(folder, "compare.html");
  const command = ["psql", "-XAtqc", "SELECT 1"];
  await run(pgfresh, ["run", "--quiet", "--compare", "-n", "1", "--report", file, "--", ...command]);
  await assertReport(browser, file, "compare", async (page) => {
    assert.match(await page.ask(() => document.body.innerText), /as fast/);
    assert.equal(await page.ask(() => document.querySelectorAll(".tile").length), 3, "two servers and a gain");
  });
});

// Test name that could run a script, and that has no place for a line break.
const HOSTILE = `<img src=x onerror=alert(1)>${"x".repeat(300)}`;

// Profiles three tests with long names and statements, two of which repeat a query. Returns the report's path.
async function profile(t) {
  const folder = await scratch(t), file = join(folder, "profile.html");
  const columns = Array.from({ length: 25 }, (_, at) => `${at} AS some_long_column_${at}`).join(", ");
  const each = Array.from({ length: 30 }, (_, at) => `SELECT ${at} AS author, '</script>' AS "<b>", ${columns};\n`);
  await writeFile(join(folder, "each.sql"), each.join(""));
  await writeFile(join(folder, "clean.sql"), "CREATE TABLE t (a text); SELECT pg_sleep(1); TRUNCATE t; SELECT 1;\n");
  const script = 'cd "$1"; psql -XAtqf each.sql one; "$2" release one --test "$3"; psql -XAtqf each.sql two; '
    + '"$2" release two --test test_two; psql -XAtqf clean.sql three; "$2" release three --test test_three';
  const words = ["run", "--quiet", "--profile", "--report", file, "--", "sh", "-euc", script, "sh", folder, pgfresh, HOSTILE];
  // On a busy machine, the sampler might miss all working sessions, so run it again.
  do await run(pgfresh, words); while (!(await readFile(file, "utf8")).includes("Sessions over time"));
  return file;
}

test("the report of a profile is one file that can be read on a phone, light and dark", async (t) => {
  const [file, browser] = await Promise.all([profile(t), Browser.open(t)]);
  await assertReport(browser, file, "profile", async (page) => {
    const text = await page.ask(() => document.body.innerText);
    for (const part of ["pg_sleep", HOSTILE, "Repeated queries"]) assert.ok(text.includes(part), part);
    assert.ok(await page.ask(() => document.querySelectorAll("svg rect title").length) > 0, "no picture");
    assert.equal(await page.ask(() => document.querySelectorAll("img, b").length), 0, "a name became an element");
  });
});

test("a profile without a client says how to name tests", async (t) => {
  const [folder, browser] = await Promise.all([scratch(t), Browser.open(t)]);
  const file = join(folder, "nameless.html");
  await run(pgfresh, ["run", "--quiet", "--profile", "--report", file, "--", "psql", "-XAtqc", "SELECT 1"]);
  await assertReport(browser, file, "nameless", async (page) => {
    const said = await page.ask(() => [...document.querySelectorAll("h2")]
      .find((head) => head.textContent === "Tests").nextElementSibling.textContent);
    assert.match(said, /use a pgfresh client \(Python, Node, Go, Java or Rust\)/);
  });
});

// Runs in the page. Returns the texts in column `at` of the table below `heading`.
function column([heading, at]) {
  const head = [...document.querySelectorAll("h2")].find((head) => head.textContent === heading);
  return [...head.nextElementSibling.querySelectorAll("tbody tr")].map((row) => row.cells[at].textContent);
}

test("tables sort by mouse and keyboard, and statements are folded and copied", async (t) => {
  const [file, browser] = await Promise.all([profile(t), Browser.open(t)]);
  const page = await browser.page(pathToFileURL(file).href);
  const names = () => page.ask(column, ["Tests", 0]);
  const sorted = [HOSTILE, "test_three", "test_two"];
  await page.ask(() => document.querySelector("th button").click());
  assert.deepEqual(await names(), sorted);
  assert.equal(await page.ask(() => document.querySelector("th").getAttribute("aria-sort")), "ascending");
  await page.ask(() => document.querySelector("th button").focus());
  await page.press("Enter");
  assert.deepEqual(await names(), sorted.toReversed());
  // The next button sorts by time, longest first.
  await page.press("Tab");
  await page.press("Enter");
  const times = await page.ask(() => [...document.querySelector("tbody").rows]
    .map((row) => Number(row.cells[1].dataset.value)));
  assert.deepEqual(times, times.toSorted((one, other) => other - one));
  const sorting = () => [...document.querySelector("tr").cells].map((head) => head.getAttribute("aria-sort"));
  assert.deepEqual((await page.ask(sorting)).slice(0, 2), [null, "descending"]);

  assert.deepEqual(await page.ask(column, ["Repeated queries", 2]), ["2"], "one row for a statement of two tests");
  await page.ask(() => {
    navigator.clipboard.writeText = async (text) => { window.copied = text; };
    document.querySelector(".copy").click();
  });
  const statement = await page.ask(() => document.querySelector("td.sql code").textContent);
  assert.equal(await page.ask(() => window.copied), statement);
  const height = () => page.ask(() => document.querySelector("summary").getBoundingClientRect().height);
  const folded = await height();
  await page.ask(() => document.querySelector("summary").focus());
  await page.press("Enter");
  assert.ok(await height() > 2 * folded, "it is still folded");
  assert.deepEqual(page.complaints, []);
});

test("a report can be read without scripts, and its statements are whole on paper", async (t) => {
  const [file, browser] = await Promise.all([profile(t), Browser.open(t)]);
  for (const width of WIDTHS) {
    const page = await browser.page(pathToFileURL(file).href, { width, scripts: false });
    await assertReadable(page, { width });
    assert.equal(await page.ask(() => document.querySelectorAll("button").length), 0, "a button does nothing");
    assert.ok((await page.ask(() => document.body.innerText)).includes("some_long_column_24"), "the end is missing");
    await page.close();
  }
  const page = await browser.page(pathToFileURL(file).href, { width: PAPER, media: "print" });
  const cut = () => [...document.querySelectorAll("summary")].filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth);
  assert.equal(await page.ask(`() => (${cut})().length`), 0);
  assert.ok(await page.ask(() => [...document.querySelectorAll("button")].every((button) => button.className !== "copy"
    || !button.checkVisibility())), "paper has a button");
});
