// The keyboard, the menu of narrow screens and the switch of themes. Keys are ignored in form fields and while a dialog is open.
import { hold, isHeld } from "./live.js";

const places = {};
for (const link of document.querySelectorAll(".nav a[data-key-go]")) places[link.dataset.keyGo] = link.href;
let going = 0;

function rows() {
  return [...document.querySelectorAll("main tbody[data-rows] > tr[data-key]")];
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
  all[at]?.classList.remove("at");
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
}

function current() {
  return document.querySelector("main tr.at");
}

function turnTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("drumbeat-theme", root.dataset.theme); } catch { /* for this page only, then */ }
  nameTheme();
}

function nameTheme() {
  const word = document.querySelector("[data-theme-word]");
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (word) word.textContent = dark ? "Dark" : "Light";
}

function help() {
  document.getElementById("help")?.showModal();
}

const keys = {
  "?": help,
  "/": () => document.getElementById("find")?.focus(),
  p: () => hold(!isHeld()),
  t: turnTheme,
  j: () => step(1),
  k: () => step(-1),
  x: () => current()?.querySelector("[data-pick-row]")?.click(),
  Enter: () => current()?.querySelector("a")?.click(),
  Escape: () => current()?.classList.remove("at"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "g") { going = Date.now(); return; }
  if (Date.now() - going < 1500 && places[event.key]) { going = 0; location.assign(places[event.key]); return; }
  going = 0;
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const act = keys[event.key];
  if (act) { event.preventDefault(); act(); }
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-help]")) help();
  if (event.target.closest("[data-theme-switch]")) turnTheme();
  const menu = event.target.closest("[data-menu]");
  const toggle = event.target.closest("[data-toggle]");
  if (toggle) toggle.setAttribute("aria-expanded", String(document.getElementById(toggle.dataset.toggle).classList.toggle("open")));
  if (menu) menu.setAttribute("aria-expanded", String(document.getElementById("side").classList.toggle("open")));
});
nameTheme();

