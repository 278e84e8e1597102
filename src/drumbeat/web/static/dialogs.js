// Acts: a button with [data-act] opens the dialog (effect, number of jobs, reason), which calls the API.
//
// The idempotency key is created when the dialog opens: a second click, or a retry after a lost response, is the same act. For a
// selection or a filter, a dry run counts the jobs first.
import { buildFields, readFields } from "./dialog_fields.js";
import { count, toast } from "./format.js";
import { refresh } from "./live.js";
import { clearSelection, selectionOf } from "./tables.js";

const dialog = document.getElementById("act");
const part = (name) => dialog.querySelector(`[data-act-${name}]`);
let current = null;

function freshKey() {
  // Not randomUUID: it is missing on plain http beyond localhost.
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function send(method, url, body, key = freshKey()) {
  const headers = { "Idempotency-Key": key };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  const record = text && /json/.test(answer.headers.get("Content-Type") || "") ? JSON.parse(text) : {};
  if (!answer.ok) throw Object.assign(new Error(record.detail || `the server answered ${answer.status}`), { record, status: answer.status });
  return record;
}

function successText(text, record) {
  if (record.in_background) return `${count(record.matched)} are processed in the background`;
  const n = record.touched ?? null;
  const left = record.refused?.length ? `, ${count(record.refused.length)} not: ${record.refused[0].reason}` : "";
  const asked = record.requested ? `, ${count(record.requested)} of them running: asked to stop` : "";
  return text.replace("{n}", n === null ? "" : count(n)).replace("{s}", n === 1 ? "" : "s") + asked + left;
}

function ask(button) {
  const data = button.dataset;
  const chosen = "bulk" in data ? selectionOf(button) : null;
  current = {
    data, key: freshKey(), working: false,
    body: { ...JSON.parse(data.body || "{}"), ...(chosen?.body ?? {}) },
  };
  dialog.querySelector("h2").textContent = data.title;
  part("text").textContent = data.text || "";
  part("text").hidden = !data.text;
  part("reason").hidden = !data.reason;
  part("optional").hidden = data.reason === "required";
  part("rate").hidden = !("rate" in data);
  buildFields(part("fields"), data.fields);
  const reason = dialog.querySelector("#act-reason");
  reason.value = "";
  reason.required = data.reason === "required";
  dialog.querySelector("#act-rate").value = "";
  const confirm = part("confirm");
  confirm.textContent = data.confirm || data.title;
  part("close").textContent = data.dismiss || "Cancel";
  confirm.className = "danger" in data ? "danger solid" : "primary";
  confirm.disabled = false;
  part("count").hidden = true;
  say("");
  dialog.showModal();
  (part("fields").querySelector("input") ?? (data.reason ? reason : confirm)).focus();
  if (chosen?.n !== undefined && chosen.n !== null && chosen.body.ids) showCount(chosen.n);
  else if ("bulk" in data) dryRun(current);
}

async function dryRun(asked) {
  part("confirm").disabled = true;
  part("count").hidden = false;
  part("count").textContent = "Counting …";
  try {
    const record = await send(asked.data.method, asked.data.url, { ...asked.body, dry_run: true });
    if (asked !== current) return;
    showCount(record.matched, record.capped);
  } catch (error) {
    if (asked === current) { part("count").hidden = true; say(error.message); }
  }
}

function showCount(n, more = false) {
  part("count").hidden = false;
  part("count").textContent = n === 0 ? "Nothing matches any more." : `This touches ${count(n)}${more ? " or more" : ""} ${n === 1 ? "job" : "jobs"}.`;
  part("confirm").disabled = n === 0;
}

function say(text) {
  part("error").textContent = text;
  part("error").hidden = !text;
}

async function perform() {
  const asked = current;
  if (!asked || asked.working) return;
  asked.working = true;
  part("confirm").disabled = true;
  say("");
  const body = structuredClone(asked.body);
  readFields(part("fields"), body);
  const reason = dialog.querySelector("#act-reason").value.trim();
  if (asked.data.reason && reason) body.reason = reason;
  const rate = dialog.querySelector("#act-rate").value;
  if ("rate" in asked.data && rate) body.rate = Number(rate);
  try {
    // A DELETE has no body: what it is given goes with its address.
    const query = asked.data.method === "DELETE" && body.reason ? `?${new URLSearchParams({ reason: body.reason })}` : "";
    const record = await send(asked.data.method, asked.data.url + query, asked.data.method === "DELETE" ? undefined : body, asked.key);
    const text = successText(asked.data.done || "Done", record);
    dialog.close();
    clearSelection();
    if (asked.data.then) {
      sessionStorage.setItem("drumbeat-message", text);
      location.assign(asked.data.then);
      return;
    }
    toast(text, false, asked.data.leads && record.id ? asked.data.leads.replace("{id}", encodeURIComponent(record.id)) : "");
    refresh();
  } catch (error) {
    say(error.message);
    part("confirm").disabled = false;
    asked.working = false;
    // A refusal is final for its key; what the person changes next is another act.
    if (error.status && error.status < 500) asked.key = freshKey();
  }
}

async function copied(element) {
  if (!element) return;
  try {
    // There is none on plain http beyond localhost.
    await navigator.clipboard.writeText(element.textContent);
    toast("Copied");
  } catch {
    getSelection().selectAllChildren(element);
    toast("Copy is blocked; press Ctrl-C", true);
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) { event.preventDefault(); ask(button); }
  const copy = event.target.closest("[data-copy]");
  if (copy) copied(document.getElementById(copy.dataset.copy));
});

if (dialog) {
  dialog.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); perform(); });
  part("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => { current = null; });
  dialog.querySelector("#act-reason").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); dialog.querySelector("form").requestSubmit(); }
  });
}

