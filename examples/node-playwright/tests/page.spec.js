// The page, in a browser.

import { expect, test } from "./app.js";

for (const name of ["Grace", "Edsger", "Barbara"]) {
  test(`${name} writes the second entry`, async ({ page }) => {
    await page.goto("/");
    await page.getByLabel("Name").fill(name);
    await page.getByLabel("Text").fill("<b>Lovely</b>");
    await page.getByRole("button", { name: "Write" }).click();
    await expect(page.getByRole("listitem")).toHaveText([`${name} <b>Lovely</b>`, "Ada The view from the tower!"]);
  });
}
