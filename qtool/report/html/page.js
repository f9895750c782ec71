"use strict";
// Sorting and filtering of the table of nodes. Both stand in the address, as in #sort=-size&filter=conv, so that a view
// can be kept. Without this script the table is as the model is.
(() => {
  const table = document.getElementById("nodes");
  if (!table) return;
  const heads = [...table.tHead.rows[0].cells];
  const bodies = [...table.tBodies];
  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  const texts = bodies.map((body) => body.rows[0].textContent.toLowerCase());
  const state = { sort: "number", filter: "" };

  const valueOf = (body, column) => {
    const cell = body.rows[0].cells[column];
    if (!("v" in cell.dataset)) return cell.textContent;
    const value = cell.dataset.v === "" ? NaN : Number(cell.dataset.v);
    return Number.isNaN(value) ? null : value;
  };
  const compare = (one, other) =>
    typeof one === "string" ? one.localeCompare(other, undefined, { numeric: true }) : one - other;

  const sort = () => {
    const key = state.sort.replace(/^-/, "");
    const sign = state.sort.startsWith("-") ? -1 : 1;
    const column = heads.findIndex((head) => head.dataset.key === key);
    if (column < 0) return;
    const rows = bodies.map((body, index) => ({ body, index, value: valueOf(body, column) }));
    // Rows that say nothing stay at the end, whichever way it is sorted.
    const isEmpty = (row) => row.value === null || row.value === "";
    rows.sort((one, other) =>
      isEmpty(one) - isEmpty(other) ||
      (isEmpty(one) ? 0 : sign * compare(one.value, other.value)) ||
      one.index - other.index);
    table.append(...rows.map((row) => row.body));
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  };

  const select = () => {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    bodies.forEach((body, index) => {
      body.hidden = !words.every((word) => texts[index].includes(word));
      count += !body.hidden;
    });
    shown.textContent = `${count} of ${bodies.length}`;
  };

  const keep = () => {
    const parts = new URLSearchParams();
    if (state.sort !== "number") parts.set("sort", state.sort);
    if (state.filter) parts.set("filter", state.filter);
    history.replaceState(null, "", `#${parts}`);
  };

  const recall = () => {
    const parts = new URLSearchParams(location.hash.slice(1));
    state.sort = parts.get("sort") || "number";
    state.filter = parts.get("filter") || "";
    filter.value = state.filter;
    sort();
    select();
  };

  for (const head of heads) {
    if (!head.dataset.key) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const key = head.dataset.key;
      const first = head.classList.contains("num") && key !== "number" ? `-${key}` : key;
      const second = first === key ? `-${key}` : key;
      state.sort = state.sort === first ? second : first;
      sort();
      keep();
    });
  }
  filter.addEventListener("input", () => {
    state.filter = filter.value;
    select();
    keep();
  });
  window.addEventListener("hashchange", recall);
  document.getElementById("controls").hidden = false;
  recall();
})();
