/** The timeline: a row for each thread, a bar for each run, and its nodes in the bar. */

import { el, plain, reconcile, setAttribute, setName, setText, svg } from "./dom.js";
import { ago, duration } from "./formats.js";

// What is kept and drawn: some screens. Together they bound the memory of the page.
const BARS = 4000;
const LANES = 16;
const BARS_PER_LANE = 32;
const NODES_PER_BAR = 12;
// Rows of the runs that are of no thread.
const SHARED_ROWS = 4;
// Seconds for which a row keeps its place after its last run, if others have something to show.
const LINGERS = 3;
const CHARACTER = 6.3; // its width in pixels, about

/** How a run is marked, and what the mark means. */
export const MARKS = {
  ok: "✓", error: "×", timed_out: "!", interrupted: "?", cancelled: "–", rejected: "r",
};

/** Keep what has ended: a snapshot has the last runs only. By key, oldest first. */
export function collect(bars, snapshot) {
  for (let at = snapshot.recent.length - 1; at >= 0; at--) {
    const run = snapshot.recent[at];
    const key = `${run.message_id} ${run.name} ${run.ended}`;
    if (!bars.has(key)) bars.set(key, { ...run, key });
  }
  for (const [key, bar] of bars) {
    if (bars.size <= BARS && snapshot.time - bar.ended < 300) break;
    bars.delete(key);
  }
}

/** Draw the rows that matter most. Returns how many threads have no row. */
export function drawTimeline(list, state, snapshot, matches) {
  const from = snapshot.time - state.seconds;
  const rows = new Map();
  const rowOf = (thread, message) => {
    const key = thread === null ? `no thread ${rowNumber(message)}` : `thread ${thread}`;
    if (!rows.has(key)) rows.set(key, { key, thread, bars: [], waiting: 0, since: null, last: 0 });
    return rows.get(key);
  };
  for (const bar of state.bars.values()) {
    if (bar.ended < from || !matches(bar)) continue;
    const row = rowOf(bar.thread_id, bar.message_id);
    row.bars.push(bar);
    row.last = bar.ended;
  }
  for (const run of snapshot.runs) {
    if (!matches(run)) continue;
    const row = rowOf(run.thread_id, run.message_id);
    row.last = snapshot.time;
    if (run.began === null) row.waiting++;
    else {
      row.since = Math.min(row.since ?? Infinity, run.began);
      row.bars.push({ ...run, key: `in flight ${run.id}`, status: null, ended: null });
    }
  }
  const shown = chosen(state.lanes, rows, snapshot.time);
  state.lanes = shown;
  const drawing = { from, now: snapshot.time, perSecond: state.width / state.seconds };
  reconcile(list, shown.map((key) => rows.get(key)), (row) => row.key, lane);
  // Rows that are there already draw with the measures of today.
  for (const child of list.children) child.draw(drawing);
  return rows.size - shown.length;
}

function rowNumber(text) {
  let sum = 0;
  for (const character of String(text)) sum = (31 * sum + character.codePointAt(0)) % 997;
  return sum % SHARED_ROWS;
}

/** Which rows are shown: those that were, in their places, and in the free places what is at work. */
function chosen(before, rows, now) {
  const shown = before.filter((key) => rows.has(key));
  const known = new Set(shown);
  const others = [...rows.values()].filter((row) => !known.has(row.key));
  const age = (row) => (row.since === null ? -1 : now - row.since);
  others.sort((one, other) => age(other) - age(one) || other.last - one.last);
  for (const row of others) {
    if (shown.length < LANES) {
      shown.push(row.key);
      continue;
    }
    if (row.since === null) break;
    const place = placeToTake(shown, rows, now, age(row));
    if (place < 0) break;
    shown[place] = row.key;
  }
  return shown;
}

function placeToTake(shown, rows, now, age) {
  let place = -1;
  let oldest = age > LINGERS ? now : now - LINGERS;
  shown.forEach((key, at) => {
    const row = rows.get(key);
    if (row.since === null && row.last < oldest) [place, oldest] = [at, row.last];
  });
  return place;
}

function lane() {
  const name = el("bdi", { class: "cut" });
  const waiting = el("span", { class: "waiting" });
  const picture = svg("svg", { role: "img" });
  const item = el("li", { class: "lane" }, el("span", { class: "lane-name" }, name, waiting), picture);
  let row;
  item.update = (latest) => {
    row = latest;
    setName(name, row.thread, "no thread");
    setText(waiting, row.waiting ? `+${row.waiting} waiting` : "");
  };
  item.draw = (drawing) => {
    const bars = row.bars.slice(-BARS_PER_LANE);
    setAttribute(picture, "aria-label", spoken(bars, drawing.now));
    reconcile(picture, bars, (bar) => bar.key, barGroup);
    for (const group of picture.children) group.draw(drawing);
  };
  return item;
}

function barGroup() {
  const title = svg("title");
  const whole = svg("rect", { class: "whole", y: 3, height: 18, rx: 3 });
  const nodes = svg("g");
  const label = svg("text", { y: 16 });
  const mark = svg("text", { class: "mark", y: 16 });
  const group = svg("g", {}, title, whole, nodes, label, mark);
  let bar;
  group.update = (latest) => {
    bar = latest;
    setAttribute(group, "class", `run ${bar.status ?? (bar.stuck ? "stuck" : "running")}`);
  };
  group.draw = (drawing) => {
    const end = bar.ended ?? drawing.now;
    const left = xOf(bar.began ?? end, drawing);
    const width = Math.max(2, xOf(end, drawing) - left);
    setAttribute(whole, "x", left.toFixed(1));
    setAttribute(whole, "width", width.toFixed(1));
    // A bar of some pixels has no room for more.
    const spans = width > 24 ? bar.nodes.slice(-NODES_PER_BAR) : [];
    reconcile(nodes, spans, (span) => `${span.node} ${span.began}`, nodeBar);
    for (const child of nodes.children) child.draw(drawing, left + width - 14);
    const sign = bar.ended === null ? "▸" : (MARKS[bar.status] ?? "");
    // What went wrong is marked behind its bar if there is no room in it.
    const inside = width > 14;
    setText(mark, inside || bar.status !== "ok" ? sign : "");
    setAttribute(mark, "text-anchor", inside ? "end" : "start");
    setAttribute(mark, "x", (left + width + (inside ? -3 : 1)).toFixed(1));
    setText(label, spans.length === 0 ? cut(bar.name, width - 20) : "");
    setAttribute(label, "x", (left + 5).toFixed(1));
    setText(title, width > 6 ? described(bar, drawing.now) : "");
  };
  return group;
}

function nodeBar() {
  const shape = svg("rect", { y: 5, height: 14, rx: 2 });
  const label = svg("text", { y: 16 });
  const group = svg("g", {}, shape, label);
  let span;
  group.update = (latest) => {
    span = latest;
    setAttribute(group, "class", `node ${span.status ?? ""}`);
  };
  group.draw = (drawing, markAt) => {
    const left = xOf(span.began, drawing);
    const width = Math.max(1, xOf(span.ended ?? drawing.now, drawing) - left - 1);
    setAttribute(shape, "x", left.toFixed(1));
    setAttribute(shape, "width", width.toFixed(1));
    setText(label, cut(span.node, Math.min(width, markAt - left) - 6));
    setAttribute(label, "x", (left + 4).toFixed(1));
  };
  return group;
}

// What began before the timeline does begins at its edge.
const xOf = (at, drawing) => Math.max(0, (at - drawing.from) * drawing.perSecond);

function cut(text, width) {
  const most = Math.floor(width / CHARACTER);
  const characters = [...plain(text)];
  if (characters.length <= most) return characters.join("");
  return most < 4 ? "" : `${characters.slice(0, most - 1).join("")}…`;
}

function described(bar, now) {
  const how = bar.ended === null
    ? `${bar.state.replaceAll("_", " ")} for ${duration(now - bar.began)}`
    : `${bar.status.replaceAll("_", " ")} after ${duration(bar.duration)}, ${ago(now - bar.ended)}`;
  const nodes = bar.nodes.slice(-NODES_PER_BAR).map((span) =>
    `${plain(span.node)}: ${duration((span.ended ?? now) - span.began)}`);
  const error = bar.error ? [`${plain(bar.error.type)} in ${plain(bar.error.node ?? "no node")}`] : [];
  return [`${plain(bar.name)} · ${plain(bar.message_id)}`, how, ...error, ...nodes].join("\n");
}

function spoken(bars, now) {
  const last = bars.at(-1);
  if (!last) return "no run has begun";
  const node = last.nodes.at(-1)?.node;
  const at = node ? ` at ${plain(node)}` : "";
  const how = last.ended === null ? `running for ${duration(now - last.began)}${at}` : last.status;
  return `${bars.length} ${bars.length === 1 ? "run" : "runs"}, the last one ${how}`;
}
