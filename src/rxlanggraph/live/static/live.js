/**
 * The live page: one state, which events change, and sections, which show it. A section is drawn
 * at most once in an animation frame, and keeps its elements: see `reconcile`.
 */

import { cancelButton, note, post, showStack } from "./actions.js";
import { follow } from "./connection.js";
import {
  drawFigures, el, find, plain, reconcile, rowsOr, setAttribute, setName, setText, stackElement, table,
} from "./dom.js";
import { ago, duration, moment, number, setTime, timeElement } from "./formats.js";
import { drawJournal } from "./journal.js";
import { answerForm } from "./questions.js";
import { can, state } from "./state.js";
import { drawTiles } from "./tiles.js";
import { MARKS, collect, drawTimeline } from "./timeline.js";

const VERSION = 1;
const OLD = 5; // seconds without a snapshot after which that is said
const ROWS = 25; // of the runs in flight, unless all are asked for
const CARDS = 10; // of the questions

// -- what arrives --------------------------------------------------------------------------------

/** Take a snapshot; false if it is not of a version that is known here. */
function receive(snapshot) {
  if (snapshot.version !== VERSION) return false;
  // Another run behind the same address: what was kept is of the one before.
  if (state.snapshot && state.snapshot.since !== snapshot.since) state.bars.clear();
  state.latest = snapshot;
  state.receivedAt = Date.now();
  collect(state.bars, snapshot);
  if (!state.paused) state.snapshot = snapshot;
  draw();
  return true;
}

function connectionIs(connection, reason = "") {
  Object.assign(state, { connection, reason });
  draw();
}

// -- drawing -------------------------------------------------------------------------------------

let frame = 0;

function draw() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    drawHeader();
    if (state.snapshot) drawSections(state.snapshot);
  });
}

function drawSections(snapshot) {
  for (const part of document.querySelectorAll("[data-of]")) {
    part.hidden = part.dataset.of !== snapshot.kind;
  }
  drawTiles(snapshot);
  drawJournal(snapshot);
  drawFailures(snapshot);
  if (snapshot.kind !== "bridge") return;
  drawLanes(snapshot);
  drawStuck(snapshot);
  drawQuestions(snapshot);
  drawRuns(snapshot);
  drawSlowest(snapshot);
  drawBlocked(snapshot);
  drawRegistry(snapshot);
}

const CONNECTIONS = {
  connecting: "… connecting", connected: "● connected", reconnecting: "○ reconnecting",
  ended: "■ ended", refused: "× refused",
};
const STATES = {
  open: "● open", closing: "◐ closing", closed: "■ closed", unreachable: "× unreachable",
};

function drawHeader() {
  const { snapshot, connection, reason } = state;
  const badge = find("connection");
  setText(badge, CONNECTIONS[connection] + (reason ? `: ${reason}` : ""));
  setAttribute(badge, "data-is", connection);
  setAttribute(document.body, "data-connection", connection);
  setText(find("age"), ageText());
  setText(find("pause"), state.paused ? "Resume" : "Pause");
  setAttribute(find("pause"), "aria-pressed", String(state.paused));
  if (!snapshot) return;
  setName(find("name"), snapshot.name);
  find("state").hidden = false;
  setText(find("state"), STATES[snapshot.state] ?? plain(snapshot.state));
  setAttribute(find("state"), "data-is", snapshot.state);
  const stuck = snapshot.runs.filter((run) => run.stuck).length;
  document.title = [
    stuck ? `${stuck} stuck, ` : "", `${number(snapshot.counts.in_flight)} in flight · `, plain(snapshot.name),
  ].join("");
}

function ageText() {
  if (!state.snapshot) return "";
  const silence = (Date.now() - state.receivedAt) / 1000;
  const at = moment(state.snapshot.time);
  if (state.paused) return `paused at ${at}`;
  if (state.connection !== "connected") return `as of ${at}`;
  return silence > OLD ? `as of ${at}, ${ago(silence)}` : at;
}

// -- the timeline --------------------------------------------------------------------------------

function drawLanes(snapshot) {
  const hidden = drawTimeline(find("lanes"), state, snapshot, matches);
  find("timeline-empty").hidden = state.lanes.length > 0;
  if (state.filter) setText(find("timeline-empty"), "No run of this time matches the filter.");
  else setText(find("timeline-empty"), "Runs appear here as bars, with a row for each thread.");
  const ticks = [1, 0.75, 0.5, 0.25, 0].map((part) => part * state.seconds);
  reconcile(find("axis"), ticks, (tick) => tick, (tick) => {
    const element = el("span", {}, tick ? `−${tick < 60 ? tick : duration(tick).replace(" 0 s", "")}${tick < 60 ? " s" : ""}` : "now");
    element.update = () => {};
    return element;
  });
  setText(find("timeline-note"), [
    hidden ? `${number(hidden)} more threads have no row; a filter finds them.` : "",
    snapshot.nodes === "sampled" ? "Nodes are seen twice a second: short ones are missing." : "",
  ].join(" ").trim());
}

function drawLegend() {
  const words = { ...MARKS, running: "▸", stuck: "▸" };
  for (const [status, mark] of Object.entries(words)) {
    find("legend").append(el("span", {}, el("span", { class: `swatch ${status}` }, mark), ` ${status.replaceAll("_", " ")}`), " ");
  }
}

function matches(run) {
  if (!state.filter) return true;
  const texts = [run.thread_id, run.message_id, run.name, run.node, ...(run.nodes ?? []).map((span) => span.node)];
  return texts.some((text) => text?.toLowerCase().includes(state.filter));
}

// -- stuck runs ----------------------------------------------------------------------------------

function drawStuck(snapshot) {
  const stuck = snapshot.runs.filter((run) => run.stuck && matches(run));
  // Those that have a stack: for the others, it is behind a button of the table.
  const shown = stuck.filter((run) => run.stack !== null);
  countIs("stuck", stuck.length);
  find("stuck-empty").hidden = stuck.length > 0;
  reconcile(find("stuck-list"), shown, (run) => run.id, stuckCard);
  setText(find("stuck-note"), stuck.length > shown.length
    ? `${stuck.length - shown.length} more are among the runs in flight.` : "");
}

function stuckCard(first) {
  const name = el("bdi", { class: "cut" });
  const facts = el("p", { class: "note" });
  const stack = stackElement();
  const buttons = el("span", { class: "buttons" });
  const isOldest = find("stuck-list").childElementCount === 0;
  const card = el("li", { class: "card stuck" },
    el("div", { class: "bar" }, el("h3", {}, "▲", name), buttons),
    facts, stack.fold(isOldest));
  const cancel = cancelButton();
  buttons.append(cancel);
  card.update = (run) => {
    setName(name, run.thread_id ?? run.message_id);
    setText(facts, `active for ${duration(activeFor(run))} · ${run.node ? `at ${plain(run.node)}` : "at no node"} · ${plain(run.name)}`);
    stack.show(run.stack);
    cancel.update(run);
  };
  card.update(first);
  return card;
}

const activeFor = (run) => run.age - (run.waiting ?? 0);

// -- questions -----------------------------------------------------------------------------------

function drawQuestions(snapshot) {
  const now = new Map(snapshot.interrupts.map((question) => [question.id, question]));
  // Somebody else may have answered what is being answered here: what was typed stays until then.
  for (const id of state.asked.keys()) {
    if (!now.has(id) && !isInUse(id)) state.asked.delete(id);
  }
  for (const [id, question] of now) state.asked.set(id, question);
  const first = new Set([...state.asked.values()].filter(matches).slice(0, CARDS));
  const shown = [...state.asked.values()].filter((question) => first.has(question) || isInUse(question.id));
  const items = shown.map((question) => ({ ...question, gone: !now.has(question.id) }));
  const count = now.size + (snapshot.left_out.interrupts ?? 0);
  countIs("questions", count);
  find("questions-empty").hidden = items.length > 0;
  reconcile(find("questions-list"), items, (question) => question.id, () => answerForm(answer, draw));
  setText(find("questions-note"), moreText(Math.max(0, count - items.length), "questions"));
}

const isInUse = (id) => find("questions-list").known?.get(id)?.isInUse() ?? false;

async function answer(question, json) {
  const name = `Answer to ${plain(question.thread_id)}`;
  const path = `api/interrupts/${encodeURIComponent(question.id)}/answer`;
  const { status, body } = await post(path, `{"value": ${json}}`);
  const said = {
    200: `answered; the run has ended: ${body.status}`,
    202: "accepted; the run is at work",
    409: `too late: ${plain(body.error)}`,
  }[status] ?? `refused: ${plain(body.error)}`;
  note(`${name}: ${said}`);
  return { done: status === 200 || status === 202, said };
}

// -- tables --------------------------------------------------------------------------------------

const RUNS = [
  ["Thread"], ["Graph", "wide"], ["State"], ["Node", "wide"], ["Age", "right"], ["Attempt", "right wide"],
  ["Message", "wide"], ["Actions", "right"],
];

function drawRuns(snapshot) {
  const body = table(find("runs-table"), "Runs in flight, the oldest first", RUNS);
  const found = snapshot.runs.filter(matches);
  const shown = state.all ? found : found.slice(0, ROWS);
  countIs("runs", snapshot.counts.in_flight);
  rowsOr(body, shown, (run) => run.id, runRow,
    state.filter ? "No run in flight matches the filter." : "Nothing is in flight.");
  const button = find("runs-all");
  button.hidden = found.length <= ROWS;
  setText(button, state.all ? `Show ${ROWS}` : `Show all ${found.length}`);
  setAttribute(button, "aria-pressed", String(state.all));
  setText(find("runs-note"), moreText(snapshot.left_out.runs, "runs"));
}

function runRow() {
  const [thread, name, message, node] = [0, 1, 2, 3].map(() => el("bdi", { class: "cut" }));
  const [how, age, attempt] = [0, 1, 2].map(() => el("span"));
  const stack = el("button", { type: "button" }, "Stack");
  const cancel = cancelButton();
  let shown;
  stack.addEventListener("click", () => showStack(shown));
  const row = el("tr", {},
    el("th", { scope: "row" }, thread), el("td", { class: "wide" }, name), el("td", {}, how),
    el("td", { class: "wide" }, node), el("td", { class: "right" }, age), el("td", { class: "right wide" }, attempt),
    el("td", { class: "wide" }, message), el("td", { class: "buttons" }, stack, cancel));
  row.update = (run) => {
    shown = run;
    setName(thread, run.thread_id, "no thread");
    setName(name, run.name);
    setName(message, run.message_id);
    setName(node, run.node);
    setText(how, `${run.stuck ? "▲ stuck, " : ""}${run.state.replaceAll("_", " ")}`);
    setAttribute(row, "data-is", run.stuck ? "stuck" : run.state);
    setText(age, duration(run.age));
    setText(attempt, run.attempt ? String(run.attempt) : "–");
    stack.hidden = !can("stack");
    setAttribute(stack, "aria-label", `Stack of ${plain(run.thread_id ?? run.message_id)}`);
    cancel.update(run);
  };
  return row;
}

function drawSlowest(snapshot) {
  const body = table(find("slowest-table"), "The slowest runs of the last minutes", [
    ["Thread"], ["Graph", "wide"], ["Status"], ["Took", "right"], ["Slowest node", "wide"], ["Ended", "right"],
  ]);
  rowsOr(body, snapshot.slowest.filter(matches), (run) => `${run.message_id} ${run.ended}`, () => {
    const [thread, name, node] = [0, 1, 2].map(() => el("bdi", { class: "cut" }));
    const [status, took] = [0, 1].map(() => el("span"));
    const ended = timeElement();
    const row = el("tr", {}, el("th", { scope: "row" }, thread), el("td", { class: "wide" }, name), el("td", {}, status),
      el("td", { class: "right" }, took), el("td", { class: "wide" }, node), el("td", { class: "right" }, ended));
    row.update = (run) => {
      setName(thread, run.thread_id, "no thread");
      setName(name, run.name);
      setText(status, `${MARKS[run.status] ?? ""} ${run.status.replaceAll("_", " ")}`);
      setAttribute(row, "data-is", run.status);
      setText(took, duration(run.duration));
      setName(node, slowestNode(run));
      setTime(ended, run.ended, state.snapshot.time);
    };
    return row;
  }, "Runs that took longest appear here.");
}

function slowestNode(run) {
  const took = (span) => (span.ended ?? run.ended) - span.began;
  const [first] = [...run.nodes].sort((one, other) => took(other) - took(one));
  return first ? `${first.node} (${duration(took(first))})` : null;
}

function drawFailures(snapshot) {
  const body = table(find("failures-table"), "Failures by kind, the most frequent first", [
    ["Count", "right"], ["Kind"], ["Graph and node", "wide"], ["First", "right wide"], ["Last", "right"], ["Thread of the last", "wide"],
  ]);
  countIs("failures", snapshot.failures.reduce((sum, kind) => sum + kind.count, snapshot.left_out.failures ?? 0));
  rowsOr(body, snapshot.failures, (kind) => JSON.stringify([kind.name, kind.status, kind.type, kind.node]), () => {
    const [type, place, thread] = [0, 1, 2].map(() => el("bdi", { class: "cut" }));
    const [count, status] = [0, 1].map(() => el("span"));
    const [first, last] = [0, 1].map(timeElement);
    const message = el("p", { class: "content" });
    const row = el("tr", {}, el("td", { class: "right" }, count),
      el("th", { scope: "row" }, type, " ", el("span", { class: "note" }, status), message),
      el("td", { class: "wide" }, place), el("td", { class: "right wide" }, first),
      el("td", { class: "right" }, last), el("td", { class: "wide" }, thread));
    row.update = (kind) => {
      setText(count, number(kind.count));
      setName(type, kind.type);
      setText(status, `${MARKS[kind.status] ?? "×"} ${plain(kind.status).replaceAll("_", " ")}`);
      setName(place, kind.node ? `${kind.name} · ${kind.node}` : kind.name);
      setTime(first, kind.first, state.snapshot.time);
      setTime(last, kind.last, state.snapshot.time);
      setName(thread, kind.thread_id);
      setText(message, kind.message === null ? "" : plain(kind.message));
      message.hidden = kind.message === null;
    };
    return row;
  }, "Nothing has failed.");
  setText(find("failures-note"), [
    moreText(snapshot.left_out.failures, "failures of other kinds"),
    snapshot.shows_content || !snapshot.failures.length ? "" : "What exceptions say is hidden.",
  ].join(" ").trim());
}

// -- the loop and the registry -------------------------------------------------------------------

function drawBlocked(snapshot) {
  const blocked = snapshot.loop.blocked;
  find("blocked-empty").hidden = blocked.length > 0;
  reconcile(find("blocked-list"), blocked, (each) => `${each.time} ${each.where}`, () => {
    const where = el("bdi", { class: "cut" });
    const seconds = el("span");
    const at = timeElement();
    const stack = stackElement();
    const card = el("li", { class: "card" },
      el("h3", {}, where), el("p", { class: "note" }, "for ", seconds, ", ", at),
      stack.fold(false));
    card.update = (each) => {
      setName(where, each.where);
      setText(seconds, duration(each.seconds));
      setTime(at, each.time, state.snapshot.time);
      stack.show(each.stack);
    };
    return card;
  });
}

function drawRegistry({ counts, since, time }) {
  const names = ["submitted", "succeeded", "failed", "cancelled", "dropped", "in_flight", "peak_in_flight"];
  drawFigures(find("registry-list"), names.map((name) => [name.replaceAll("_", " "), number(counts[name])]));
  setText(find("since"), `Counted for ${duration(time - since)}, since ${moment(since)}.`);
}

// -- what sections share -------------------------------------------------------------------------

const countIs = (section, count) => setText(find(`${section}-count`), count ? number(count) : "");
const moreText = (count, what) => (count ? `${number(count)} more ${what} are not shown.` : "");

// -- what is pressed -----------------------------------------------------------------------------

find("pause").addEventListener("click", () => {
  state.paused = !state.paused;
  state.snapshot = state.latest;
  draw();
});
find("span").addEventListener("click", (event) => {
  const { seconds } = event.target.dataset;
  if (!seconds) return;
  state.seconds = Number(seconds);
  for (const button of find("span").children) {
    setAttribute(button, "aria-pressed", String(button === event.target));
  }
  draw();
});
find("filter").addEventListener("input", (event) => {
  state.filter = event.target.value.trim().toLowerCase();
  draw();
});
find("runs-all").addEventListener("click", () => {
  state.all = !state.all;
  draw();
});
// Asked for while it is drawn, the width would have the page laid out twice.
new ResizeObserver(([entry]) => {
  state.width = entry.contentRect.width;
  draw();
}).observe(find("axis"));

drawLegend();
setInterval(drawHeader, 1000);
follow(receive, connectionIs);
