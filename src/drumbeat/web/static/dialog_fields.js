// Fields of the dialog of an act beyond its reason: numbers and checks, named by their place in the body: limits.0.rate.

export function buildFields(box, text) {
  box.replaceChildren();
  const fields = JSON.parse(text || "[]");
  box.hidden = !fields.length;
  for (const [number, field] of fields.entries()) {
    const part = document.createElement("div"), label = document.createElement("label"), input = document.createElement("input");
    part.className = "field";
    input.id = `act-field-${number}`;
    input.dataset.field = field.name;
    input.dataset.test = `field-${field.name}`;
    label.htmlFor = input.id;
    label.textContent = field.label;
    if (field.kind === "check") {
      input.type = "checkbox";
      input.defaultChecked = Boolean(field.value);
      part.classList.add("check");
      part.append(input, label);
    } else {
      input.type = "number";
      input.min = "0";
      input.step = "any";
      input.inputMode = "decimal";
      if (field.max !== null) input.max = field.max;
      input.defaultValue = field.value ?? "";
      part.append(label, input);
    }
    box.append(part);
  }
}

// Writes what the fields say into the body: empty ones are left out, checks only if they were changed.
export function readFields(box, body) {
  for (const input of box.querySelectorAll("[data-field]")) {
    const isCheck = input.type === "checkbox";
    if (isCheck ? input.checked === input.defaultChecked : input.value.trim() === "") continue;
    put(body, input.dataset.field.split("."), isCheck ? input.checked : Number(input.value));
  }
  // A limit of which nothing was given is none.
  if (body.limits) body.limits = body.limits.filter((limit) => ["concurrency", "rate", "per"].some((name) => name in limit));
}

function put(record, [name, ...rest], value) {
  if (!rest.length) { record[name] = value; return; }
  record[name] ??= /^\d+$/.test(rest[0]) ? [] : {};
  put(record[name], rest, value);
}
