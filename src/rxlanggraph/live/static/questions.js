/** A question that waits, with a form to answer it. */

import { el, plain, setAttribute, setName, setText } from "./dom.js";
import { setTime, timeElement } from "./formats.js";
import { can, state } from "./state.js";

let forms = 0;

/**
 * Make the card of a question. `answer(question, json)` sends an answer, and says what became of
 * it; `forget()` is called when the card may go. A card in use stays when its question is gone.
 */
export function answerForm(answer, forget) {
  const id = `answer-${++forms}`;
  const name = el("bdi", { class: "cut" });
  const graph = el("bdi");
  const asked = timeElement();
  const value = el("pre", { class: "content", tabindex: 0, "aria-label": "What is asked" });
  const text = el("textarea", { id, rows: 2, autocomplete: "off", "aria-describedby": `${id}-result` });
  const isText = radio(id, "text", true);
  const isJson = radio(id, "json", false);
  const send = el("button", { type: "submit" }, "Answer");
  const dismiss = el("button", { type: "button", hidden: true }, "Dismiss");
  const result = el("output", { id: `${id}-result` });
  const form = el("form", {},
    el("label", { for: id }, "Answer"), text,
    el("div", { class: "buttons" },
      el("label", {}, isText, " text"), el("label", {}, isJson, " JSON"), send, dismiss),
    result);
  const card = el("li", { class: "card question" },
    el("h3", {}, "?", name), el("p", { class: "note" }, "asked ", asked, " · ", graph), value, form);
  let question;
  let sent = false;
  let dismissed = false;

  card.update = (latest) => {
    question = latest;
    setName(name, question.thread_id);
    setName(graph, question.name);
    setTime(asked, question.asked, state.snapshot.time);
    const hidden = !state.snapshot.shows_content;
    setText(value, hidden ? "What it asks is hidden." : plainJson(question.value));
    setAttribute(value, "data-hidden", hidden);
    send.disabled = sent || question.answering || question.gone;
    setText(send, question.answering ? "Being answered" : "Answer");
    dismiss.hidden = !question.gone;
    form.hidden = !can("answer");
    if (question.gone && !result.textContent) setText(result, "This is not asked any more.");
    setAttribute(card, "data-gone", question.gone);
  };
  card.isInUse = () => !dismissed && (text.value !== "" || card.contains(document.activeElement));
  dismiss.addEventListener("click", () => {
    dismissed = true;
    forget();
  });

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let json = JSON.stringify(text.value);
    if (isJson.checked) {
      try {
        JSON.parse(text.value);
        json = text.value; // as it was typed: numbers of more than 16 digits would be rounded
      } catch (error) {
        setAttribute(text, "aria-invalid", "true");
        return setText(result, `Not JSON: ${error.message}`);
      }
    }
    setAttribute(text, "aria-invalid", null);
    sent = send.disabled = true;
    setText(result, "Sending …");
    const { done, said } = await answer(question, json);
    setText(result, said);
    sent = false;
    if (done) [text.value, dismissed] = ["", true];
    else send.disabled = question.gone;
  });
  // As in other forms of several lines.
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return card;
}

function radio(name, value, checked) {
  return el("input", { type: "radio", name: `${name}-kind`, value, checked });
}

function plainJson(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return plain(text);
}
