// On the page of a store that is away: ask again until it answers, then show what was asked for.
const PAUSE = 2000, TIMEOUT = 8000;
const told = document.querySelector("[data-again]");

async function ask() {
  let answer = null;
  try {
    answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
  } catch {
    // The server of this page does not answer either.
  }
  if (answer && answer.status !== 503) { location.reload(); return; }
  if (told) told.textContent = `Last attempt at ${new Date().toLocaleTimeString("en-GB")}; retrying.`;
  setTimeout(ask, PAUSE);
}

setTimeout(ask, PAUSE);
