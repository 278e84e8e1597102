// Light or dark, before the first paint: a classic script in <head>, so that no page flashes. Without a choice the system decides.
try {
  const chosen = localStorage.getItem("drumbeat-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; then the system decides each time.
}
