// The form of a task. Arguments are put together as JSON text, never through a number: 2^53 + 1 stays what was typed.
import { send } from "./dialogs.js";
import { clearErrors, showError } from "./forms.js";

const form = document.querySelector("[data-enqueue]");
const NUMBERS = { whole: /^-?(0|[1-9]\d*)$/, number: /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/ };

function asJson(field) {
  const text = field.value.trim();
  const kind = field.dataset.kind;
  if (kind === "text") return JSON.stringify(field.value);
  if (kind === "json") { JSON.parse(text); return text; }
  if (!NUMBERS[kind].test(text)) throw new Error(kind === "whole" ? "must be an integer" : "must be a number");
  return text;
}

function argumentsText() {
  const all = form.querySelector("[data-args]");
  if (all) return all.value.trim() || "{}";
  const parts = [];
  for (const field of form.querySelectorAll("[data-arg]")) {
    // An empty text field that may be left out is left out; one that must be there is an empty text.
    if (field.value === "" && !(field.required && field.dataset.kind === "text")) {
      if (field.required) { showError(form, "required", field.dataset.arg); return null; }
      continue;
    }
    try {
      parts.push(`${JSON.stringify(field.dataset.arg)}: ${asJson(field)}`);
    } catch (error) {
      showError(form, field.dataset.kind === "json" ? `not JSON: ${error.message}` : error.message, field.dataset.arg);
      return null;
    }
  }
  return `{${parts.join(", ")}}`;
}

async function submit() {
  clearErrors(form);
  const args = argumentsText();
  if (args === null) return;
  const body = { task: form.dataset.enqueue, args };
  for (const field of form.querySelectorAll("[data-option]")) {
    const text = field.value.trim();
    if (!text) continue;
    if (field.dataset.kind === "whole" && !NUMBERS.whole.test(text)) return showError(form, "must be an integer", field.dataset.option);
    body[field.dataset.option] = field.dataset.kind === "whole" ? Number(text) : text;
  }
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  try {
    const made = await send("POST", form.dataset.url, body);
    sessionStorage.setItem("drumbeat-message", made.created ? "Enqueued" : "A live job already has this key");
    location.assign(form.dataset.job + made.id);
  } catch (error) {
    showError(form, error.message, error.record?.argument ?? null);
    button.disabled = false;
  }
}

form?.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
