/** The state of the page: what has arrived, and what was chosen. `live.js` changes it, and draws. */

export const state = {
  snapshot: null, // what is shown
  latest: null, // what has arrived, which is more where it is paused
  receivedAt: 0, // by the clock of this machine, which may not be that of the server
  connection: "connecting",
  reason: "",
  paused: false,
  filter: "",
  seconds: 60, // of the timeline
  width: 600, // of its bars, in pixels
  all: false,
  bars: new Map(),
  lanes: [],
  asked: new Map(), // questions whose cards are kept, by their ids
  confirmed: null, // the run that the dialogs are about
};

/** Whether an action is offered: not all have all, and after the end there are none. */
export function can(action) {
  return state.snapshot?.actions.includes(action) && state.connection !== "ended";
}
