"use strict";
// The hall and the reveal. The hall follows its board's stream, scrolls slowly where it is longer than the screen, and
// announces a record; a reveal opens its steps without loading the page anew. Both let rows glide to their new places.
(() => {
  const hall = document.getElementById("hall"), reveal = document.getElementById("reveal");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const GLIDE_MS = 900, CHEER_MS = 9000, SETTLE_MS = 500, LOOK_MS = 60000, AGAIN_MS = 5000;

  const fetched = async (url) => {
    let answer;
    try { answer = await fetch(url, { headers: { Accept: "text/html" } }); } catch { return null; }
    if (answer.redirected || [401, 403, 404].includes(answer.status)) location.reload();
    if (!answer.ok || answer.redirected) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  };
  const rows = (root) => [...root.querySelectorAll("[data-key]")];
  const swap = (shown, fresh) => {
    const before = new Map(rows(shown).map((row) => [row.dataset.key, row.getBoundingClientRect().top]));
    shown.replaceChildren(...fresh.childNodes);
    if (calm.matches) return;
    for (const row of rows(shown)) {
      const was = before.get(row.dataset.key), by = was === undefined ? 0 : was - row.getBoundingClientRect().top;
      const how = { duration: GLIDE_MS, easing: "ease-in-out" };
      if (by) row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], how);
      else if (was === undefined) row.animate([{ opacity: 0 }, { opacity: 1 }], how);
    }
  };
  const isControl = (target) => target.closest?.("a, button, summary, input, select, textarea") ?? null;

  const full = document.querySelector("[data-full]");
  if (full && document.fullscreenEnabled) {
    full.hidden = false;
    full.addEventListener("click", () => document.documentElement.requestFullscreen());
  }

  if (hall) {
    // ------------------------------------------------------------------ scrolling
    const button = document.querySelector("[data-pause]");
    const SPEED = 0.04, WAIT_MS = 6000; // of the screen's height in a second; at either end
    let paused = false, wait = WAIT_MS, at = 0, last = 0, isDown = false;
    const room = () => document.documentElement.scrollHeight - innerHeight;
    const pause = (now) => {
      paused = now;
      button.textContent = paused ? "Go on" : "Pause";
    };
    const roll = (time) => {
      requestAnimationFrame(roll);
      const passed = Math.min(100, time - last);
      last = time;
      button.hidden = calm.matches || room() < 8;
      if (paused || button.hidden || document.querySelector(".fanfare")) return;
      if (wait > 0) {
        wait -= passed;
        return;
      }
      if (isDown) {
        isDown = false;
        at = 0;
        wait = WAIT_MS;
        scrollTo({ top: 0, behavior: "smooth" });
        return;
      }
      if (Math.abs(scrollY - at) > 2) at = scrollY; // somebody has scrolled themselves
      at = Math.min(room(), at + innerHeight * SPEED * passed / 1000);
      scrollTo(0, at);
      if (at >= room()) {
        isDown = true;
        wait = WAIT_MS;
      }
    };
    requestAnimationFrame(roll);
    button.addEventListener("click", () => pause(!paused));
    document.getElementById("content").addEventListener("click", (event) => {
      if (!isControl(event.target)) pause(!paused);
    });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape") document.querySelector(".fanfare")?.remove();
      if (event.key !== " " || isControl(event.target)) return;
      event.preventDefault();
      pause(!paused);
    });

    // ------------------------------------------------------------------ news
    const cheer = () => {
      const said = document.getElementById("record"), box = document.createElement("div");
      if (!said) return;
      document.querySelector(".fanfare")?.remove();
      box.className = "fanfare";
      box.setAttribute("role", "status");
      document.body.append(box);
      box.append(...said.cloneNode(true).childNodes);
      box.addEventListener("click", () => box.remove());
      setTimeout(() => box.remove(), CHEER_MS);
    };
    const tellTime = () => {
      const clock = hall.querySelector(".hall-clock");
      if (clock) clock.hidden = false;
    };
    let stream = null, settling = null;
    const look = async () => {
      settling = null;
      const fresh = (await fetched(location.href))?.getElementById("hall");
      if (!fresh) return;
      const isRecord = fresh.dataset.record && fresh.dataset.record !== hall.dataset.record;
      hall.dataset.record = fresh.dataset.record ?? "";
      swap(hall, fresh);
      tellTime();
      if (isRecord) cheer();
    };
    const soon = () => { settling ??= setTimeout(look, SETTLE_MS); };
    const leave = () => {
      stream?.close();
      stream = null;
    };
    const follow = () => {
      if (stream || document.hidden) return;
      stream = new EventSource(hall.dataset.live);
      for (const kind of ["queue", "standings", "moved"]) stream.addEventListener(kind, soon);
      stream.addEventListener("error", () => {
        if (stream?.readyState !== EventSource.CLOSED) return;
        leave(); // refused: a browser doesn't ask again by itself
        setTimeout(() => { soon(); follow(); }, AGAIN_MS * (1 + Math.random()));
      });
    };
    tellTime();
    follow();
    setInterval(soon, LOOK_MS);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) leave(); else { soon(); follow(); }
    });
    addEventListener("pagehide", leave);
  }

  if (reveal) {
    let busy = false;
    const go = async (link) => {
      if (busy || !link) return;
      busy = true;
      const fresh = (await fetched(link.href))?.getElementById("reveal");
      if (fresh) {
        const hadFocus = reveal.contains(document.activeElement), kind = link.matches("[data-next]") ? "next" : "back";
        history.replaceState(null, "", link.href);
        swap(reveal, fresh);
        const row = document.getElementById("opened") ?? document.getElementById("following");
        row?.scrollIntoView({ block: "center", behavior: calm.matches ? "instant" : "smooth" });
        const again = reveal.querySelector(`[data-${kind}]`) ?? reveal.querySelector("[data-back], [data-next]");
        if (hadFocus) again?.focus({ preventScroll: true });
      } else {
        location.href = link.href;
      }
      busy = false;
    };
    const next = () => reveal.querySelector("[data-next]"), back = () => reveal.querySelector("[data-back]");
    reveal.addEventListener("click", (event) => {
      const link = event.target.closest("[data-next], [data-back]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(link);
    });
    // A presenter's remote control sends PageDown and PageUp.
    const keys = { " ": next, ArrowRight: next, PageDown: next, ArrowLeft: back, PageUp: back };
    addEventListener("keydown", (event) => {
      const control = isControl(event.target);
      if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey) return;
      if (control && !control.matches("[data-next], [data-back]")) return;
      event.preventDefault();
      go(keys[event.key]());
    });
    (document.getElementById("opened") ?? document.getElementById("following"))?.scrollIntoView({ block: "center" });
  }
})();
