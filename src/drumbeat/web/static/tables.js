// Selecting rows: some, all of this page, or all that match the filter. The selection goes by key, so live updates do not lose it.
//
//   <section data-pick data-filter='{...}' data-matching="1234">   what belongs together
//     [data-pick-bar]  shown while something is selected     [data-pick-page]  the box in the head
//     tbody[data-rows] > tr[data-key] with an input[data-pick-row]
import { count } from "./format.js";

const everything = new WeakSet();   // sections in which all that match are selected

function rowsOf(section) {
  return [...section.querySelectorAll("tbody[data-rows] > tr[data-key]")];
}

function chosenOf(section) {
  return rowsOf(section).filter((row) => row.querySelector("[data-pick-row]")?.checked);
}

export function selectionOf(button) {
  const section = button.closest("[data-pick]");
  // A button on its own (a group of dead letters) has its filter in its body.
  if (!section || button.closest("[data-pick-bar]") === null) return null;
  if (everything.has(section)) {
    const filter = JSON.parse(section.dataset.filter || "{}");
    // An act on everything must be explicit.
    return { body: Object.keys(filter).length ? { filter } : { all: true }, n: null };
  }
  const ids = chosenOf(section).map((row) => row.dataset.key);
  return { body: { ids }, n: ids.length };
}

export function clearSelection() {
  for (const section of document.querySelectorAll("[data-pick]")) {
    for (const box of section.querySelectorAll("[data-pick-row], [data-pick-page]")) box.checked = false;
    everything.delete(section);
    show(section);
  }
}

function show(section) {
  const bar = section.querySelector("[data-pick-bar]");
  if (!bar) return;
  const rows = rowsOf(section), chosen = chosenOf(section);
  if (chosen.length < rows.length) everything.delete(section);
  for (const row of rows) row.setAttribute("aria-selected", String(chosen.includes(row)));
  const head = section.querySelector("[data-pick-page]");
  if (head) { head.checked = rows.length > 0 && chosen.length === rows.length; head.indeterminate = chosen.length > 0 && chosen.length < rows.length; }
  bar.hidden = chosen.length === 0;
  const all = everything.has(section);
  const matching = Number(section.dataset.matching || 0);
  const many = `${count(matching)}${section.dataset.capped ? " or more" : ""}`;
  bar.querySelector("[data-pick-text]").textContent = all ? `All ${many} that match are selected` : `${count(chosen.length)} selected`;
  const more = bar.querySelector("[data-pick-all]");
  if (more) {
    more.hidden = !(chosen.length === rows.length && !all && (matching > rows.length || section.dataset.capped));
    more.textContent = `Select all ${many} that match`;
  }
}

document.addEventListener("change", (event) => {
  const section = event.target.closest("[data-pick]");
  if (!section) return;
  if (event.target.matches("[data-pick-page]")) {
    for (const row of rowsOf(section)) { const box = row.querySelector("[data-pick-row]"); if (box) box.checked = event.target.checked; }
  }
  if (event.target.matches("[data-pick-page], [data-pick-row]")) show(section);
});

// Shift and click selects from the last one on.
let last = null;
document.addEventListener("click", (event) => {
  const box = event.target.closest("[data-pick-row]");
  if (box) {
    const section = box.closest("[data-pick]");
    if (event.shiftKey && last?.isConnected) {
      const boxes = [...section.querySelectorAll("[data-pick-row]")];
      const [from, to] = [boxes.indexOf(last), boxes.indexOf(box)].sort((a, b) => a - b);
      for (const one of boxes.slice(Math.max(0, from), to + 1)) one.checked = box.checked;
    }
    last = box;
    show(section);
  }
  if (event.target.closest("[data-pick-all]")) { const section = event.target.closest("[data-pick]"); everything.add(section); show(section); }
  if (event.target.closest("[data-pick-none]")) clearSelection();
});

document.addEventListener("refreshed", () => document.querySelectorAll("[data-pick]").forEach(show));
