"use strict";

const events = new EventSource("api/events");
events.addEventListener("snapshot", (event) => {
  const snapshot = JSON.parse(event.data);
  document.getElementById("snapshot").textContent = JSON.stringify(snapshot.counts, null, 2);
});
events.addEventListener("end", () => events.close());
