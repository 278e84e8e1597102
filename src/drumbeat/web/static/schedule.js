// The form of a schedule: previews the next fire times while typing, or shows the error of the rule at its field.
import { send } from "./dialogs.js";
import { clearErrors, showError } from "./forms.js";
import { ago } from "./format.js";

const form = document.querySelector("[data-schedule]");
const words = document.querySelector("[data-preview-words]");
const list = document.querySelector("[data-preview-list]");
const note = document.querySelector("[data-preview-note]");
let asked = 0, timer = 0;

const value = (name) => form.elements.namedItem(name)?.value.trim() ?? "";

function showFields() {
  for (const row of form.querySelectorAll("[data-for]")) row.hidden = !row.dataset.for.split(" ").includes(value("kind"));
}

// ---- preview ----

function query() {
  const kind = value("kind");
  const given = kind === "cron" ? { kind: "cron", rule: value("cron"), tz: value("tz") || "UTC" } : { kind: "every", rule: value("every"), grid: String(kind === "grid") };
  const name = form.elements.namedItem("name").value.trim() || form.elements.namedItem("task")?.value || "";
  if (/^[A-Za-z0-9_.:-]{1,100}$/.test(name)) given.name = name;
  return new URLSearchParams({ ...given, count: "8", lenient: "true" });
}

async function preview() {
  const mine = ++asked;
  const kind = value("kind");
  const rule = value(kind === "cron" ? "cron" : "every");
  clearRule();
  if (!rule) return tell("Enter a rule.", true);
  let answer, record;
  try {
    answer = await fetch(`${form.dataset.preview}?${query()}`, { cache: "no-store" });
    record = await answer.json();
  } catch {
    return mine === asked && tell("Server unavailable.", true);
  }
  if (mine !== asked) return;
  if (!answer.ok || record.error) return refuse(kind, record);
  tell(record.words, false);
  note.hidden = kind !== "after";
  list.replaceChildren(...record.items.map(row));
}

function refuse(kind, record) {
  const field = record.argument === "rule" ? (kind === "cron" ? "cron" : "every") : record.argument;
  showError(form, record.error ?? record.detail ?? "invalid rule", field, false);
  tell("No fire times.", true);
}

function clearRule() {
  for (const name of ["cron", "tz", "every"]) {
    const one = form.querySelector(`[data-error-for=${name}]`);
    one.hidden = true;
    one.textContent = "";
    form.elements.namedItem(name)?.removeAttribute("aria-invalid");
  }
}

function tell(text, bad) {
  words.textContent = text;
  words.classList.toggle("bad", bad);
  if (bad) list.replaceChildren();
}

function row(item) {
  const line = document.createElement("li");
  const at = document.createElement("span");
  // The text of the server, in the schedule's own zone: a browser would tell its own.
  const [, day, clock, offset] = item.at.match(/^(\d+-\d+-\d+)T(\d+:\d+:\d+)(?:\.\d+)?(.*)$/) ?? [null, item.at, "", ""];
  at.textContent = `${weekday(day)} ${day} ${clock} ${offset === "Z" || offset === "+00:00" ? "UTC" : offset}`;
  const away = document.createElement("time");
  away.className = "muted";
  away.dateTime = item.at;
  away.dataset.ago = "";
  away.textContent = ago(Date.parse(item.at), Date.now());
  line.append(at, away);
  if (item.note) {
    const said = document.createElement("span");
    said.className = "note";
    said.textContent = item.note;
    line.append(said);
  }
  return line;
}

function weekday(day) {
  const date = new Date(`${day}T00:00:00Z`);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleDateString("en-GB", { weekday: "short", timeZone: "UTC" });
}

// ---- sending ----

const WHOLE = ["priority", "catch_up_limit"];
const NULLABLE = ["max_late", "start", "end"];

function body() {
  const kind = value("kind");
  const given = kind === "cron" ? { cron: value("cron"), tz: value("tz") || "UTC" } : { every: value("every"), grid: kind === "grid" };
  const editing = form.dataset.method === "PUT";
  for (const name of ["task", "name", "queue", "jitter", "overlap", "catch_up", "reason"]) {
    const field = form.elements.namedItem(name);
    if (field && !field.disabled && value(name)) given[name] = value(name);
  }
  if (editing && !value("jitter")) given.jitter = 0;
  for (const name of NULLABLE) { if (value(name)) given[name] = value(name); else if (editing) given[name] = null; }
  for (const name of WHOLE) {
    if (!value(name)) continue;
    if (!/^\d{1,9}$/.test(value(name))) { showError(form, "must be an integer", name); return null; }
    given[name] = Number(value(name));
  }
  // As text: a number of twenty digits must not go through this browser's own.
  const args = value("args") || "{}";
  if (!editing || args !== form.elements.namedItem("args").defaultValue.trim()) given.args = args;
  return given;
}

async function submit() {
  clearErrors(form);
  const given = body();
  if (given === null) return;
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  try {
    const made = await send(form.dataset.method, form.dataset.url, given);
    sessionStorage.setItem("drumbeat-message", `${made.name}: ${made.words}`);
    location.assign(form.dataset.then + encodeURIComponent(made.name));
  } catch (error) {
    // What is no field of the form is an argument of the task.
    const about = error.record?.argument ?? null;
    showError(form, error.message, about === null || form.elements.namedItem(about) ? about : "args");
    button.disabled = false;
  }
}

if (form) {
  form.addEventListener("input", (event) => {
    showFields();
    if (["kind", "cron", "tz", "every", "name", "task"].includes(event.target.name)) { clearTimeout(timer); timer = setTimeout(preview, 150); }
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  showFields();
  preview();
}
