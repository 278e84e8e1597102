// Numbers and times as text, as in web/pages/formatting.py; and short messages. Text only, no markup.

export const base = document.documentElement.dataset.base || "";

export function count(n) {
  if (n === null || n === undefined) return "–";
  return Math.round(n).toLocaleString("en-US");
}

export function ms(n) {
  if (n === null || n === undefined) return "–";
  return n < 1 ? `${n.toFixed(2)} ms` : n < 10 ? `${n.toFixed(1)} ms` : n < 1000 ? `${Math.round(n)} ms` : `${(n / 1000).toFixed(1)} s`;
}

export function rate(n) {
  if (n === null || n === undefined) return "–";
  return n === 0 ? "0/s" : n < 10 ? `${n.toFixed(1)}/s` : `${count(n)}/s`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.abs(seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([unit]) => s >= unit);
  const [unit, word] = parts[first];
  const whole = Math.floor(s / unit);
  const next = parts[first + 1];
  const rest = next && first < 2 ? Math.floor((s - whole * unit) / next[0]) : 0;
  return rest ? `${whole} ${word} ${rest} ${next[1]}` : `${whole} ${word}`;
}

export function ago(moment, now) {
  const s = (now - moment) / 1000;
  if (Math.abs(s) < 1) return "now";
  const whole = Math.abs(s) < 60 ? `${Math.floor(Math.abs(s))} s` : span(s);
  return s > 0 ? `${whole} ago` : `in ${whole}`;
}

export const formats = { count, ms, rate, span };

// `leads`: a URL that the notice links to; it then stays longer, and while it is hovered or focused.
export function toast(text, bad = false, leads = "") {
  const box = document.querySelector(".toasts");
  const note = document.createElement(leads ? "a" : "div");
  note.className = bad ? "toast bad" : "toast";
  note.textContent = text;
  note.dataset.test = "toast";
  if (leads) note.href = leads;
  box.append(note);
  const leave = () => (note.matches(":hover, :focus") ? setTimeout(leave, 1000) : note.remove());
  setTimeout(leave, bad || leads ? 9000 : 5000);
}

// The message of an act on the previous page.
const left = sessionStorage.getItem("drumbeat-message");
if (left) {
  sessionStorage.removeItem("drumbeat-message");
  toast(left);
}
