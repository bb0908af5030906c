/** Numbers, durations and times, for people. */

import { el, setAttribute, setText } from "./dom.js";

const NUMBERS = new Intl.NumberFormat("en");
const MOMENTS = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export const number = (value) => NUMBERS.format(value);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.01) return `${(1000 * Math.max(0, seconds)).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** How long ago: without fractions, which would change all the time. */
export function ago(seconds) {
  if (seconds < 1) return "now";
  return seconds < 60 ? `${Math.floor(seconds)} s ago` : `${duration(seconds)} ago`;
}

export const moment = (at) => MOMENTS.format(new Date(1000 * at));

/** A time: relative as its text, absolute as its tooltip. */
export function timeElement() {
  return el("time");
}

export function setTime(element, at, now) {
  if (at === null || at === undefined) {
    setText(element, "–");
    setAttribute(element, "datetime", null);
    setAttribute(element, "title", null);
    return;
  }
  setText(element, ago(now - at));
  setAttribute(element, "datetime", new Date(1000 * at).toISOString());
  setAttribute(element, "title", moment(at));
}
