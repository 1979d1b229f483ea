"use strict";
// Tables that sort and statements that can be copied. The page can be read without this script.
document.documentElement.className = "scripted";

// A number for cells with a value or of a column of numbers, and else the text. Unknown values are null.
function key(cell) {
  const text = cell.textContent;
  if (text === "–" || text === "") return null;
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const number = cell.classList.contains("right") ? Number.parseFloat(text) : Number.NaN;
  return Number.isNaN(number) ? text : number;
}
function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), undefined, { numeric: true });
}
function sort(body, at, down) {
  const rows = [...body.rows].map((row) => [key(row.cells[at]), row]);
  rows.sort(([one], [other]) => {
    if (one === null || other === null) return (one === null) - (other === null);
    return down ? compare(other, one) : compare(one, other);
  });
  body.append(...rows.map(([, row]) => row));
}
for (const table of document.querySelectorAll("table.rows")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const was = head.getAttribute("aria-sort");
      const down = was ? was === "ascending" : head.classList.contains("right");
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(table.tBodies[0], at, down);
    });
  });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers without a secure context only copy what is selected.
    const field = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
for (const code of document.querySelectorAll("td.sql code")) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "Copy" });
  code.closest("div").append(button);
  button.addEventListener("click", async () => {
    await copy(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
