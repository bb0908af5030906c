/** The progress of a durable run, in all of its processes. */

import { drawFigures, el, find, rowsOr, setAttribute, setName, setText, plain, table } from "./dom.js";
import { number } from "./formats.js";

export function drawJournal({ journal }) {
  find("journal").hidden = journal === null;
  if (journal === null) return;
  const body = find("journal-body");
  body.update ??= makeJournal(body);
  body.update(journal);
}

function makeJournal(body) {
  const [graph, input, file] = [0, 1, 2].map(() => el("bdi", { class: "cut" }));
  const begun = el("span");
  const bar = el("progress", { "aria-label": "Lines that have an answer" });
  const share = el("strong");
  const figures = el("dl", { class: "figures" });
  const workers = el("div", { class: "scroll" });
  body.append(
    el("p", { class: "facts" }, graph, " on ", input, ", in ", file, ", begun ", begun),
    el("p", { class: "progress" }, bar, " ", share), figures, workers);
  return (journal) => {
    setName(graph, journal.graph);
    setName(input, journal.input);
    setName(file, journal.journal);
    setText(begun, plain(journal.begun));
    setAttribute(bar, "max", Math.max(1, journal.lines));
    setAttribute(bar, "value", journal.answered);
    setText(share, `${number(journal.answered)} of ${number(journal.lines)}${journal.input_complete ? "" : " read so far"}${journal.finished ? ", finished" : ""}`);
    const names = ["ok", "failed", "dead", "invalid", "in_flight", "waiting"];
    drawFigures(figures, names.map((name) => [name.replaceAll("_", " "), number(journal[name])]));
    const rows = table(workers, "Messages in flight by worker", [["Worker"], ["In flight", "right"]]);
    rowsOr(rows, Object.entries(journal.workers), ([worker]) => worker, () => {
      const worker = el("bdi", { class: "cut" });
      const count = el("td", { class: "right" });
      const row = el("tr", {}, el("th", { scope: "row" }, worker), count);
      row.update = ([name, messages]) => {
        setName(worker, name);
        setText(count, number(messages));
      };
      return row;
    }, "No worker has a message in flight.");
  };
}
