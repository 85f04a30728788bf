"use strict";
// Counts down to the moments of a page, second by second. What the server wrote stays where there is no script.
(() => {
  const two = (number) => String(number).padStart(2, "0");
  const left = (ms) => {
    const all = Math.max(0, Math.ceil(ms / 1000)), days = Math.floor(all / 86400);
    const clock = [Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60, all % 60].map(two).join(":");
    return days ? `${days} day${days === 1 ? "" : "s"} ${clock}` : clock;
  };
  const write = () => {
    const now = new Date();
    for (const one of document.querySelectorAll("time[data-left]")) {
      one.textContent = left(new Date(one.dateTime) - now);
    }
    for (const one of document.querySelectorAll("time[data-clock]")) {
      one.textContent = [now.getHours(), now.getMinutes(), now.getSeconds()].map(two).join(":");
      one.dateTime = one.textContent;
    }
  };
  const tell = () => {
    write();
    setTimeout(tell, 1000 - (Date.now() % 1000));
  };
  tell();
  // What a page is sent anew is a clock before it is seen.
  const live = document.getElementById("live");
  if (live) new MutationObserver(write).observe(live, { childList: true });
})();
