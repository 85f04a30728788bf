"use strict";
// Fetches the page again when something may have changed, and replaces the old part with the new one.
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
        if (fresh && fresh.innerHTML !== here.innerHTML) here.replaceChildren(...fresh.childNodes);
      }
    } catch { again = false; }
    busy = false;
    if (again) { again = false; look(); }
  };
  const source = new EventSource(here.dataset.live);
  source.addEventListener("scored", look);
  source.addEventListener("moved", look);
  source.addEventListener("over", () => source.close());
  addEventListener("pagehide", () => source.close());
})();
