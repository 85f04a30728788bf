"use strict";
// Keeps a page up to date. A board is sent its changed parts; other pages are fetched again when something has changed.
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
  const show = (event) => {
    const part = document.getElementById(event.type);
    if (!part) return;
    const open = part.querySelector("details")?.open;
    part.innerHTML = JSON.parse(event.data);
    if (open) part.querySelector("details")?.setAttribute("open", "");
  };
  const source = new EventSource(here.dataset.live);
  source.addEventListener("queue", show);
  source.addEventListener("standings", show);
  source.addEventListener("moved", look);
  source.addEventListener("over", () => source.close());
  addEventListener("pagehide", () => source.close());
})();
