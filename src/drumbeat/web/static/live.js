// Live updates: one event stream, at most one batch of changes a second.
//
//   figures   [data-live="counts.ready"]   get their text from the last tick, by [data-format]
//   regions   [data-region="jobs"][data-refresh]   are fetched again as this page's own HTML and merged
//             "change": when counts have changed, at most every 2 s; "change 10": likewise, every 10 s; "5": every 5 s in any case
//   moments   <time data-ago>              are updated each second
//
// Merging keeps what a person is at: rows do not move, come or go under the pointer (they are told of instead), what is checked,
// typed or opened stays, and dialogs stand outside of all regions. Nothing is merged while the page is held (key p) or hidden.
import { ago, base, formats } from "./format.js";

const BATCH = 1000;
const REFRESH_TIMEOUT = 8000;      // an answer that does not come must not keep the page from asking again
let tick = null, stream = null, held = false, dirty = false, busy = false, again = false, skew = 0;
const began = Date.now();   // what was drawn may be older than the first tick: that counts as a change
const due = new Map();      // region -> when it was last fetched
const postponed = new Set();     // regions whose rows wait because somebody uses them
let seen = { print: "", at: 0 };   // what the ticks count, and since when

export function isHeld() { return held; }
export function lastTick() { return tick; }

// ---- the stream ----

function open() {
  if (stream || document.hidden || !document.querySelector("[data-page]")) return;
  stream = new EventSource(`${base}/api/v1/events`);
  stream.addEventListener("tick", (event) => {
    tick = JSON.parse(event.data);
    skew = Date.parse(tick.at) - Date.now();
    dirty = true;
    showStoreDown("");
  });
  stream.addEventListener("store_down", () => showStoreDown("Store unavailable.", "Store unavailable"));
  stream.addEventListener("error", () => {
    showStoreDown("Server unavailable.", "Health unknown");
    // The browser reconnects by itself unless it was refused.
    if (stream?.readyState === EventSource.CLOSED) { close(); setTimeout(open, 5000); }
  });
}

function close() {
  stream?.close();
  stream = null;
}

// The last verdict is no longer valid: it is replaced until the server has rendered a new one.
function showStoreDown(reason, verdict = "") {
  const was = document.documentElement.classList.contains("store-gone");
  document.documentElement.classList.toggle("store-gone", reason !== "");
  if (reason) {
    const note = document.querySelector(".away"), judged = document.querySelector("[data-verdict]");
    if (note) setText(note, `${reason} Showing the last known state; reconnecting.`);
    if (!judged) return;
    judged.className = "verdict bad";
    judged.title = reason;
    setText(judged.querySelector("span"), verdict);
    judged.querySelector("use").setAttribute("href", "#i-s-bad");
  } else if (was) due.set("health", 0);
}

// ---- one batch ----

function reach(record, path) {
  return path.split(".").reduce((inside, name) => {
    if (inside === null || inside === undefined) return undefined;
    // queues[default].ready: one of a list by its name
    const [, list, key] = name.match(/^(\w+)\[(.*)\]$/) || [];
    return list ? (inside[list] || []).find((one) => one.name === decodeURIComponent(key)) : inside[name];
  }, record);
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function figures() {
  for (const element of document.querySelectorAll("[data-live]")) {
    const value = reach(tick, element.dataset.live);
    if (value === undefined) continue;
    const alarm = "liveAlarm" in element.dataset;
    setText(element, alarm && !value ? "" : formats[element.dataset.format || "count"](value));
    if (alarm) element.classList.toggle("alarm", value > 0);
    else if (typeof value === "number" && element.classList.contains("figure")) element.classList.toggle("zero", value === 0);
  }
}

function updateTimes() {
  const now = Date.now() + skew;
  for (const element of document.querySelectorAll("time[data-ago]")) setText(element, ago(Date.parse(element.dateTime), now));
}

// Without changes of counts: times and errors may still differ.
const IDLE = 60000;

function isDue(region, now, changedAt) {
  const { region: name, refresh: how } = region.dataset;
  if (postponed.has(name) && ![...region.querySelectorAll("[data-rows]")].some(isAtWork)) return true;
  const fetched = due.get(name) ?? began;
  const passed = now - fetched;
  const [word, seconds] = (how || "").split(" ");
  if (word !== "change") return word && passed >= Number(word) * 1000;
  return (changedAt > fetched && passed >= Number(seconds || 2) * 1000) || passed >= IDLE;
}

function dueRegions(now) {
  const print = tick ? JSON.stringify([tick.counts, tick.queues.map((q) => [q.name, q.ready, q.running, q.paused]), tick.instances.alive, tick.leader?.instance, tick.health.level, tick.health.text]) : "";
  if (print !== seen.print) seen = { print, at: now };
  return [...document.querySelectorAll("[data-region][data-refresh]")].filter((region) => isDue(region, now, seen.at)).map((region) => region.dataset.region);
}

export async function refresh(names = null) {
  if (busy) { if (!names) again = true; return; }
  busy = true;
  const wanted = names ?? [...document.querySelectorAll("[data-region]")].map((region) => region.dataset.region);
  try {
    const asked = Date.now();   // not the time of the response: later changes are fetched again
    const answer = await fetch(location.href, { headers: { "X-Refresh": wanted.join(",") }, cache: "no-store", signal: AbortSignal.timeout(REFRESH_TIMEOUT) });
    for (const name of wanted) { due.set(name, asked); postponed.delete(name); }
    if (answer.status === 401) { location.reload(); return; }
    if (!answer.ok) return;
    // Parsed apart: scripts in it would not run, and there are none.
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (held && names) return;
    for (const name of wanted) {
      const old = document.querySelector(`[data-region="${name}"]`);
      const next = fresh.querySelector(`[data-region="${name}"]`);
      if (old && next) merge(old, next);
    }
    // The page is older than the last tick.
    if (tick) figures();
    document.dispatchEvent(new CustomEvent("refreshed"));
  } catch {
    // No server: the stream says so, and the next round tries again.
  } finally {
    busy = false;
    if (again) { again = false; refresh(); }
  }
}

function batch() {
  if (held || document.hidden) return;
  if (tick && dirty) { figures(); dirty = false; }
  updateTimes();
  const wanted = dueRegions(Date.now());
  if (wanted.length) refresh(wanted);
}

// ---- merging ----

// Set by the page itself; the server's HTML must not remove them.
const KEPT = new Set(["open", "checked", "aria-selected", "aria-expanded", "data-more", "class"]);
const KEPT_CLASSES = ["at", "fresh"];

function attributes(old, next) {
  for (const { name, value } of [...next.attributes]) {
    if (!KEPT.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (!KEPT.has(name) && !next.hasAttribute(name)) old.removeAttribute(name);
  const kept = KEPT_CLASSES.filter((name) => old.classList.contains(name));
  const wanted = [...next.classList, ...kept.filter((name) => !next.classList.contains(name))].join(" ");
  if ((old.getAttribute("class") ?? "") !== wanted) old.setAttribute("class", wanted);
}

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.dataset?.key ?? "") === (b.dataset?.key ?? "");
}

function merge(old, next) {
  if (old.isEqualNode(next) || "keep" in (old.dataset ?? {})) return;
  if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = next.nodeValue; return; }
  if (["INPUT", "TEXTAREA", "SELECT"].includes(old.nodeName)) return;
  if (old.matches("svg.chart") && old.matches(":hover, :focus-within")) return;
  // A graph that grows moves its boxes: not under the pointer. States change in any case.
  if (old.dataset.shape !== next.dataset.shape && old.matches(":hover, :focus-within")) {
    postponed.add(old.closest("[data-region]").dataset.region);
    return;
  }
  attributes(old, next);
  if ("rows" in old.dataset) mergeRows(old, next);
  else mergeChildren(old, next);
}

function mergeChildren(old, next) {
  const fresh = [...next.childNodes];
  fresh.forEach((child, place) => {
    const there = old.childNodes[place];
    if (there && same(there, child)) merge(there, child);
    else if (there) there.replaceWith(document.importNode(child, true));
    else old.append(document.importNode(child, true));
  });
  while (old.childNodes.length > fresh.length) old.lastChild.remove();
}

function isAtWork(rows) {
  return rows.matches(":hover, :focus-within") || rows.querySelector("[aria-selected=true], .at") || document.querySelector("dialog[open]");
}

// Rows are matched by key. They do not move while the pointer or the focus is on them or some are selected.
function mergeRows(old, next) {
  const mine = new Map([...old.children].map((row) => [row.dataset.key, row]));
  const theirs = [...next.children];
  const keys = new Set(theirs.map((row) => row.dataset.key));
  const added = theirs.filter((row) => !mine.has(row.dataset.key));
  for (const row of theirs) if (mine.has(row.dataset.key)) merge(mine.get(row.dataset.key), row);
  for (const [key, row] of mine) row.classList.toggle("gone", !keys.has(key));
  if (mine.size && isAtWork(old)) {
    if (added.length || keys.size !== mine.size) postponed.add(old.closest("[data-region]").dataset.region);
    news(old, added.length);
    return;
  }
  news(old, 0);
  for (const [key, row] of mine) if (!keys.has(key)) row.remove();
  theirs.forEach((row, place) => {
    const there = mine.get(row.dataset.key) ?? freshRow(row);
    if (old.children[place] !== there) old.insertBefore(there, old.children[place] ?? null);
  });
}

function freshRow(row) {
  const made = document.importNode(row, true);
  made.classList.add("fresh");
  return made;
}

function news(rows, n) {
  const note = rows.closest(".card, section")?.querySelector(".news");
  if (!note) return;
  note.classList.toggle("on", n > 0);
  setText(note, n > 0 ? `${n} new; shown when you leave the list` : "");
}

// ---- holding still ----

export function hold(yes) {
  held = yes;
  const key = document.querySelector("[data-pause]");
  if (key) {
    key.setAttribute("aria-pressed", String(yes));
    setText(key.querySelector("[data-pause-word]"), yes ? "Paused" : "Live");
    key.querySelector("use").setAttribute("href", yes ? "#i-play" : "#i-pause");
  }
  if (!yes) { dirty = true; batch(); }
}

document.querySelector("[data-pause]")?.addEventListener("click", () => hold(!held));
document.addEventListener("visibilitychange", () => (document.hidden ? close() : (open(), batch())));
addEventListener("pagehide", close);
addEventListener("pageshow", open);
open();
setInterval(batch, BATCH);
