// Hover and focus over charts that the server has drawn: what a bar stands for is in its [data-tip], as text with line breaks.

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("role", "presentation");
document.body.append(tip);

function show(mark, x, y) {
  tip.textContent = mark.dataset.tip;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  // Through the object model: a style attribute would be refused by our own policy.
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y - height - 12 < 8 ? y + 18 : y - height - 12}px`;
}

document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest?.("[data-tip]");
  if (mark) show(mark, event.clientX, event.clientY);
  else if (!tip.hidden && !document.activeElement?.matches("[data-tip]:focus-visible")) tip.hidden = true;
});
document.addEventListener("focusin", (event) => {
  const mark = event.target.closest?.("[data-tip]");
  if (!mark?.matches(":focus-visible")) return;
  const box = mark.getBoundingClientRect();
  show(mark, box.left + box.width / 2, box.top);
});
document.addEventListener("focusout", () => { tip.hidden = true; });
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

// A chart is one stop of the tab key; the arrows go from slot to slot.
document.addEventListener("keydown", (event) => {
  const slot = event.target.closest?.(".chart a.slot");
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!slot || !by) return;
  const slots = [...slot.closest("svg").querySelectorAll("a.slot")];
  const next = slots[slots.indexOf(slot) + by];
  if (!next) return;
  event.preventDefault();
  slot.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});
