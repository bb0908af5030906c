/** What is done to runs: after a dialog, and said at the end of the page. */

import { el, find, plain, setAttribute, setText, stackElement } from "./dom.js";
import { can, state } from "./state.js";

const whereStack = stackElement();

export function cancelButton() {
  const button = el("button", { type: "button", class: "danger" }, "Cancel");
  let shown;
  button.addEventListener("click", () => confirmCancel(shown));
  button.update = (run) => {
    shown = run;
    button.hidden = !can("cancel");
    button.disabled = run.state === "cancelling" || run.state === "finished";
    setText(button, run.state === "cancelling" ? "Cancelling" : "Cancel");
    setAttribute(button, "aria-label", `${button.textContent} ${plain(run.thread_id ?? run.message_id)}`);
  };
  return button;
}

function confirmCancel(run) {
  state.confirmed = run;
  showFacts(find("confirm-facts"), run);
  find("confirm").returnValue = "";
  find("confirm").showModal();
}

async function cancelConfirmed() {
  if (find("confirm").returnValue !== "cancel") return;
  const run = state.confirmed;
  const { status, body } = await post(`api/runs/${run.id}/cancel`, "{}");
  const said = status === 200 ? "cancelled" : `not cancelled: ${plain(body.error)}`;
  note(`Run of ${plain(run.thread_id ?? run.message_id)}: ${said}`);
}

export async function showStack(run) {
  state.confirmed = run;
  showFacts(find("where-facts"), run);
  if (!find("where").open) {
    whereStack.show("…");
    find("where").showModal();
  }
  let text;
  try {
    const response = await fetch(`api/runs/${run.id}/stack`);
    const body = await response.json();
    text = response.ok ? body.stack : body.error;
  } catch {
    text = "The program does not answer.";
  }
  if (state.confirmed === run) whereStack.show(text);
}

function showFacts(list, run) {
  const facts = [
    ["thread", run.thread_id], ["message", run.message_id], ["graph", run.name], ["node", run.node],
  ].filter(([, value]) => value !== null);
  list.replaceChildren(...facts.flatMap(([name, value]) =>
    [el("dt", {}, name), el("dd", {}, el("bdi", {}, plain(value)))]));
}

export async function post(path, json) {
  try {
    const response = await fetch(path, {
      method: "POST", headers: { "content-type": "application/json" }, body: json,
    });
    return { status: response.status, body: await response.json() };
  } catch {
    return { status: 0, body: { error: "no answer came; it may have arrived or not" } };
  }
}

/** Say what was done; a screen reader reads it. */
export function note(text) {
  const list = find("activity");
  list.append(el("li", {}, `${new Date().toLocaleTimeString("en-GB")} ${text}`));
  while (list.childElementCount > 5) list.firstChild.remove();
}

find("where-facts").after(whereStack);
find("confirm").addEventListener("close", cancelConfirmed);
find("where-again").addEventListener("click", () => showStack(state.confirmed));
