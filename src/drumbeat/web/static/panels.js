// Buttons of panels without a dialog. Those with one are acts, see dialogs.js.
import { send } from "./dialogs.js";
import { refresh } from "./live.js";
import { toast } from "./format.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-press]");
  if (!button || button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    const record = await send("POST", button.dataset.press, {});
    toast(record.message);
    refresh();
  } catch (error) {
    toast(error.message, true);
  } finally {
    button.removeAttribute("aria-busy");
  }
});
