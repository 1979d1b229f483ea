// Tests the documentation site in a browser: searching works, the site fits on a phone, and it doesn't load anything
// from other origins.
//
// PGFRESH_TEST_SITE is the folder that `make docs` fills.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { extname, join } from "node:path";
import { test } from "node:test";

import { Browser } from "./browser.mjs";

const { PGFRESH_TEST_SITE: site } = process.env;
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json" };

// Serves the site until the test ends. Returns the site's origin.
async function serve(t) {
  const server = http.createServer(async (request, response) => {
    try {
      const { pathname } = new URL(request.url, "http://localhost");
      const text = await readFile(join(site, decodeURIComponent(pathname)));
      response.writeHead(200, { "content-type": TYPES[extname(pathname)] ?? "application/octet-stream" }).end(text);
    } catch {
      response.writeHead(404).end();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

test("a message that is typed into the search box finds the page of errors", async (t) => {
  const [origin, browser] = await Promise.all([serve(t), Browser.open(t)]);
  const page = await browser.page(`${origin}/index.html`);
  await page.ask(() => {
    const box = document.querySelector(".md-search__input");
    box.focus();
    box.value = "postmaster ended with";
    box.dispatchEvent(new InputEvent("input", { bubbles: true }));
    box.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
  });
  await page.until(() => document.querySelectorAll("a.md-search-result__link").length > 0);
  const found = await page.ask(() => [...document.querySelectorAll("a.md-search-result__link")].map(({ href }) => href));
  assert.ok(found.some((url) => url.includes("/docs/troubleshooting.html")), found.join("\n"));
  // The style sheet contains the icons as data URLs.
  const asked = page.requests.filter((url) => !url.startsWith("data:"));
  assert.deepEqual([...new Set(asked.map((url) => new URL(url).origin))], [origin]);
  assert.deepEqual(page.complaints, []);
});

test("pages with wide tables and long lines fit on a phone", async (t) => {
  const [origin, browser] = await Promise.all([serve(t), Browser.open(t)]);
  for (const name of ["index", "docs/migrating", "docs/results", "docs/quickstart/django"]) {
    const page = await browser.page(`${origin}/${name}.html`, { width: 360 });
    assert.equal(await page.ask(() => document.scrollingElement.scrollWidth), 360, name);
    assert.deepEqual(page.complaints, [], name);
  }
});
