// What forms that call the API have in common: a refusal is shown at the field that it is about, and nothing else is lost.

export function clearErrors(form) {
  for (const note of form.querySelectorAll("[data-error-for], [data-form-error]")) { note.textContent = ""; note.hidden = true; }
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

export function fieldOf(form, name) {
  return [...form.querySelectorAll("[data-arg], [data-option], [name]")].find((field) => (field.dataset.arg ?? field.dataset.option ?? field.name) === name);
}

// At its field, if there is one for `name`, else beneath the form. A field in a closed part is opened.
export function showError(form, text, name = null, focus = true) {
  const note = [...form.querySelectorAll("[data-error-for]")].find((one) => one.dataset.errorFor === name) ?? form.querySelector("[data-form-error]");
  note.textContent = text;
  note.hidden = false;
  const details = note.closest("details");
  if (details) details.open = true;
  const field = name === null ? null : fieldOf(form, name);
  if (!field) return;
  field.setAttribute("aria-invalid", "true");
  if (focus) field.focus();
}
