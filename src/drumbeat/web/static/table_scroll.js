// Tables that are wider than their place: [data-more="left right"] on .table-box says which way there is more; app.css shows it.

function mark(box) {
  const left = box.scrollLeft > 1, right = box.scrollLeft + box.clientWidth < box.scrollWidth - 1;
  const more = [left && "left", right && "right"].filter(Boolean).join(" ");
  if ((box.dataset.more ?? "") === more) return;
  if (more) box.dataset.more = more;
  else delete box.dataset.more;
}

const sizes = new ResizeObserver((entries) => { for (const entry of entries) { const box = entry.target.closest(".table-box"); if (box) mark(box); } });

function watch() {
  for (const box of document.querySelectorAll(".table-box")) {
    // What is observed already stays so: a table that a live update has brought is new.
    for (const part of [box, ...box.querySelectorAll(":scope > table")]) sizes.observe(part);
    mark(box);
  }
}

document.addEventListener("scroll", (event) => { if (event.target.classList?.contains("table-box")) mark(event.target); }, { capture: true, passive: true });
document.addEventListener("refreshed", watch);
watch();
