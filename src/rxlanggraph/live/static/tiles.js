/** The tiles: what matters most at present, with charts of the last five minutes. */

import { chart, drawChart } from "./charts.js";
import { el, find, reconcile, setAttribute, setText } from "./dom.js";
import { duration, number } from "./formats.js";

const LAG = 0.1; // seconds of the loop that are worth a mark

export function drawTiles(snapshot) {
  const { counts, history, loop } = snapshot;
  const failed = history.error.map((_, at) => failedAt(history, at));
  const ended = history.ok.map((ok, at) => ok + failed[at] + history.interrupted[at] + history.cancelled[at]);
  const stuck = snapshot.runs.filter((run) => run.stuck).length;
  const isBridge = snapshot.kind === "bridge";
  const tiles = [
    {
      key: "active", title: "Active", href: isBridge && "#runs", values: history.active,
      figure: number(counts.active),
      of: counts.max_concurrency === null ? "" : ` of ${number(counts.max_concurrency)}`,
      note: counts.active === counts.max_concurrency ? "▲ full" : `peak ${number(counts.peak_in_flight)} in flight`,
      limit: counts.max_concurrency, warns: counts.active === counts.max_concurrency,
    },
    {
      key: "queued", title: "Waiting", href: isBridge && "#runs", values: history.queued,
      figure: number(counts.queued), note: `peak ${peak(history.queued)}`,
    },
    {
      key: "ended", title: "Ended", values: ended,
      figure: number(lastMinute(ended)), of: " / min", note: `peak ${peak(ended)} / s`,
    },
    {
      key: "failed", title: "Failed", href: "#failures", values: failed,
      figure: number(lastMinute(failed)), of: " / min",
      note: `${number(counts.failed)} in all`, warns: lastMinute(failed) > 0,
    },
  ];
  if (isBridge) {
    tiles.push(
      {
        key: "lag", title: "Loop lag", href: "#blocked", figure: duration(loop.lag),
        note: loop.lag > LAG ? "▲ slow" : loop.lag === null ? "not measured" : "", warns: loop.lag > LAG,
      },
      {
        key: "stuck", title: "Stuck", href: "#stuck", figure: number(stuck),
        note: stuck ? "▲ see stacks" : "", warns: stuck > 0,
      },
      {
        key: "asked", title: "Questions", href: "#questions",
        figure: number(snapshot.interrupts.length + (snapshot.left_out.interrupts ?? 0)),
        note: snapshot.interrupts.length ? "? waiting" : "",
      },
    );
  }
  reconcile(find("tiles"), tiles, (tile) => tile.key, makeTile);
}

function makeTile(tile) {
  const title = el(tile.href ? "a" : "span", tile.href ? { href: tile.href } : {}, tile.title);
  const figure = el("strong");
  const of = el("span", { class: "of" });
  const note = el("p", { class: "note" });
  const picture = tile.values ? chart() : null;
  const element = el("div", { class: `tile ${picture ? "" : "small"}`, id: `tile-${tile.key}` },
    el("h3", {}, title), el("p", { class: "figure" }, figure, of), note);
  if (picture) element.append(picture);
  element.update = ({ figure: value, of: unit = "", note: text, values, limit = null, warns = false }) => {
    setText(figure, value);
    setText(of, unit);
    setText(note, text);
    setAttribute(element, "data-warns", warns);
    if (picture) {
      drawChart(picture, values, `${tile.title} in the last five minutes: now ${value}${unit}, peak ${peak(values)}`, limit);
    }
  };
  return element;
}

const failedAt = (history, at) => history.error[at] + history.timed_out[at] + history.rejected[at];
const lastMinute = (values) => values.slice(-60).reduce((sum, value) => sum + value, 0);
const peak = (values) => number(Math.max(0, ...values.map((value) => value ?? 0)));
