"use strict";
// Fetches the page again when a place may have moved, and puts the new tables where the old ones were.
(() => {
  const here = document.getElementById("live");
  if (!here || !window.EventSource) return;
  let busy = false;
  let again = false;
  const look = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("live");
        if (fresh) here.replaceChildren(...fresh.childNodes);
      }
    } catch { again = false; }
    busy = false;
    if (again) { again = false; look(); }
  };
  const source = new EventSource(`/live/${encodeURIComponent(here.dataset.board)}?after=${here.dataset.seen}`);
  source.addEventListener("scored", look);
  addEventListener("pagehide", () => source.close());
})();
