// A graph that is wider than its box begins with its first node in the middle, not with an empty corner.
const box = document.querySelector(".graph-box");
const first = box?.querySelector("[data-key] > svg");
if (first) {
  const middle = Number(first.getAttribute("x")) + Number(first.getAttribute("width")) / 2;
  box.scrollLeft = Math.max(0, middle - box.clientWidth / 2);
}
