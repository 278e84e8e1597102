// On the error page of an unavailable store: retry until it responds, then reload.
const PAUSE = 2000, TIMEOUT = 8000;
const note = document.querySelector("[data-again]");

async function ask() {
  let answer = null;
  try {
    answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
  } catch {
    // The server of this page does not answer either.
  }
  if (answer && answer.status !== 503) { location.reload(); return; }
  if (note) note.textContent = `Last attempt at ${new Date().toLocaleTimeString("en-GB")}; retrying.`;
  setTimeout(ask, PAUSE);
}

setTimeout(ask, PAUSE);
