"use strict";
// Tables: a heading sorts by its column, numbers as numbers; empty cells stay last.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const body = table.tBodies[0];
    const compare = (one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
      return down ? -order : order;
    };
    body.append(...[...body.rows].sort(compare));
  }));
}
// Copy as tab-separated text, as a spreadsheet takes it: unrounded values.
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const table = button.parentElement.querySelector("table");
    const cell = c => (c.dataset.v ?? c.textContent.trim());
    const text = [...table.rows].map(row => [...row.cells].map(cell).join("\t")).join("\n");
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // A page opened from a file may lack the clipboard: select the table instead.
      getSelection().selectAllChildren(table);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2500);
  });
}
// The contents start closed where they would fill the first screen.
if (!matchMedia("(min-width: 70rem)").matches) document.querySelector("nav details").open = false;
// An anchor inside closed numbers or a link from the contents must be seen at once.
document.querySelector("nav").addEventListener("click", event => {
  if (event.target.closest("a") && !matchMedia("(min-width: 70rem)").matches)
    document.querySelector("nav details").open = false;
});
