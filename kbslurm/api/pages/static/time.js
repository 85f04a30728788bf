"use strict";
// Writes each time in the reader's own zone, as the server writes them in UTC or a board's; a title keeps that one.
(() => {
  const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
  const two = (number) => String(number).padStart(2, "0");
  const written = (at) => {
    const name = zone.formatToParts(at).find((part) => part.type === "timeZoneName").value;
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())} ${name}`;
  };
  const localise = (time) => {
    const at = new Date(time.dateTime);
    if (time.title || Number.isNaN(at.getTime())) return;
    time.title = time.textContent;
    time.textContent = written(at);
  };
  const all = (root) => root.querySelectorAll("time[datetime]").forEach(localise);
  all(document);
  const live = document.getElementById("live");
  if (live) new MutationObserver(() => all(live)).observe(live, { childList: true, subtree: true });
})();
