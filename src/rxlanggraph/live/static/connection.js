/** The connection: snapshots as they come, and what has become of it. */

const RETRY_SECONDS = 2;
// Seconds without a snapshot after which the connection is made anew: a machine that slept may not
// have been told that it is gone.
const SILENT = 60;

/**
 * Follow the events. `receive(snapshot)` is called with each snapshot; `changed(how, reason)` with
 * "connected", "reconnecting", "ended" or "refused".
 */
export function follow(receive, changed) {
  let events = null;
  let heardAt = Date.now();
  let over = false;

  function connect() {
    events?.close();
    heardAt = Date.now();
    events = new EventSource("api/events");
    events.addEventListener("open", () => changed("connected"));
    events.addEventListener("snapshot", (event) => {
      heardAt = Date.now();
      if (!receive(JSON.parse(event.data))) end("refused", "the program was updated: load this page again");
    });
    events.addEventListener("end", (event) => end("ended", JSON.parse(event.data).reason));
    events.addEventListener("error", () => {
      changed("reconnecting");
      // Without an answer the browser tries again by itself; where it was refused, it does not.
      if (events.readyState === EventSource.CLOSED) askWhy();
    });
  }

  function end(how, reason) {
    over = true;
    events.close();
    changed(how, reason);
  }

  async function askWhy() {
    try {
      const { status } = await fetch("api/snapshot", { method: "HEAD" });
      if (status === 401 || status === 421) {
        return end("refused", "open the address that has the token once more");
      }
      if (status === 200) changed("reconnecting", "too many pages are open");
    } catch {
      // It is not there, for now.
    }
    setTimeout(connect, 1000 * RETRY_SECONDS);
  }

  setInterval(() => {
    if (!over && events.readyState === EventSource.OPEN && Date.now() - heardAt > 1000 * SILENT) connect();
  }, 1000);
  connect();
}
