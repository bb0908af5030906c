/** Charts of the last five minutes: one series each, so that no colour has to tell two apart. */

import { setAttribute, svg } from "./dom.js";

const HEIGHT = 40;

/** An empty chart, to be filled by `drawChart`. */
export function chart() {
  return svg("svg", { class: "chart", role: "img", preserveAspectRatio: "none" },
    svg("path", { class: "area" }), svg("path", { class: "line" }),
    svg("path", { class: "limit" }));
}

/** Draw one value for each second, with a line at `limit`. Unknown values are as the last one. */
export function drawChart(chart, values, label, limit = null) {
  const [area, line, limitLine] = chart.children;
  const known = carriedOn(values);
  const most = Math.max(1, limit ?? 0, ...known);
  const y = (value) => (HEIGHT - ((HEIGHT - 2) * value) / most).toFixed(1);
  let path = `M0 ${y(known[0])}`;
  // Only where it changes: most of five quiet minutes is one line.
  for (let at = 1; at < known.length; at++) {
    if (known[at] !== known[at - 1]) path += `H${at}V${y(known[at])}`;
  }
  path += `H${known.length}`;
  setAttribute(chart, "viewBox", `0 0 ${known.length} ${HEIGHT}`);
  setAttribute(chart, "aria-label", label);
  setAttribute(line, "d", path);
  setAttribute(area, "d", `${path}V${HEIGHT}H0Z`);
  setAttribute(limitLine, "d", limit === null ? "" : `M0 ${y(limit)}H${known.length}`);
}

function carriedOn(values) {
  let last = 0;
  return values.map((value) => (last = value ?? last));
}
