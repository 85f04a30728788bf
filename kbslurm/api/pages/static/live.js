"use strict";
// Keeps a page up to date. A board is sent its changed parts; other pages are fetched again when something has changed.
// While nobody looks at the page nothing is open: a browser has six connections to a server, for all its tabs together.
(() => {
  const here = document.getElementById("live");
  if (!here || !window.EventSource) return;
  const CONTROLS = "a, button, summary, input";
  const FIRST_MS = 1000, MOST_MS = 60000, AGAIN_MS = 4000; // a crowd whose service was away comes back one after another
  let stream = null, timer = null, wait = FIRST_MS;
  let seen = "", newest = ""; // the version that the page shows, where it isn't the first one, and the last one told of
  let over = false, busy = false, again = false;

  // Forms of a list have the same address, and differ in what they send.
  const sentBy = (form) => [...form.querySelectorAll("[type=hidden]")].map((one) => one.value).join();
  const nameOf = (control) => control.tagName + (control.href ?? (control.form ? control.form.action + sentBy(control.form) : ""));
  // What is replaced keeps the keyboard's place, and its tables stay unfolded.
  const replace = (part, act) => {
    const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const unfolded = [...part.querySelectorAll("details")].map((one) => one.open);
    act();
    part.querySelectorAll("details").forEach((one, n) => { one.open = unfolded[n] ?? false; });
    if (focused === null) return;
    [...part.querySelectorAll(CONTROLS)].find((one) => nameOf(one) === focused)?.focus();
    if (document.activeElement === document.body) document.getElementById("content").focus({ preventScroll: true });
  };

  // The page as it is now; null if it couldn't be had. Whoever may no longer see it gets what they may: the page that
  // says so, or the one to sign in.
  const fetched = async () => {
    let answer;
    try { answer = await fetch(location.href, { headers: { Accept: "text/html" } }); } catch { return null; }
    if (answer.redirected || [401, 403, 404].includes(answer.status)) location.reload();
    if (!answer.ok || answer.redirected) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  };
  const look = async (event) => {
    newest = event?.lastEventId || newest;
    if (busy) { again = true; return false; }
    busy = true;
    const shown = newest, fresh = (await fetched())?.getElementById("live");
    if (fresh && fresh.innerHTML !== here.innerHTML) replace(here, () => here.replaceChildren(...fresh.childNodes));
    busy = false;
    if (!fresh) refused(); else if (shown) seen = shown;
    if (fresh && !fresh.dataset.live && !fresh.dataset.poll) { over = true; leave(); } // nothing more will come
    if (fresh && again) look();
    again = false;
    return Boolean(fresh);
  };
  // Those who watch a part are told before it changes and after.
  const swap = (part, html) => {
    part.dispatchEvent(new Event("changing"));
    replace(part, () => { part.innerHTML = html; });
    part.dispatchEvent(new Event("changed"));
  };
  const show = (event) => {
    if (event.lastEventId) seen = event.lastEventId;
    const part = document.getElementById(event.type);
    if (!part) return;
    // Of places that somebody chose, nobody else has a copy: they are fetched, at most once in a while.
    if (event.type === "standings" && "again" in here.dataset) later(part); else swap(part, JSON.parse(event.data));
  };
  let due = null;
  const later = (part) => {
    due ??= setTimeout(async () => {
      due = null;
      const fresh = (await fetched())?.getElementById(part.id);
      if (fresh && fresh.innerHTML !== part.innerHTML) swap(part, fresh.innerHTML);
    }, AGAIN_MS);
  };

  const leave = () => {
    clearTimeout(timer);
    stream?.close();
    stream = null;
  };
  // What makes no event is looked at every so many milliseconds, as long as the page says that more is to come.
  const poll = () => {
    timer = setTimeout(async () => { if (await look()) follow(); }, Number(here.dataset.poll));
  };
  const follow = () => {
    if (stream || over || document.hidden) return;
    if (here.dataset.poll) return void poll();
    const from = here.dataset.live;
    if (!from) return;
    stream = new EventSource(seen ? from.replace(/seen=[^&]*/, `seen=${seen}`) : from);
    stream.addEventListener("open", () => { wait = FIRST_MS; });
    stream.addEventListener("queue", show);
    stream.addEventListener("standings", show);
    stream.addEventListener("moved", look);
    stream.addEventListener("over", () => { over = true; leave(); });
    stream.addEventListener("error", () => { if (stream?.readyState === EventSource.CLOSED) refused(); });
  };
  // A browser doesn't ask again by itself once it was refused, whether for good or because the service was away.
  const refused = () => {
    leave();
    if (over || document.hidden) return;
    timer = setTimeout(async () => {
      if (await fetched()) follow(); else refused();
    }, wait * (0.5 + Math.random()));
    wait = Math.min(2 * wait, MOST_MS);
  };
  const comeBack = () => {
    wait = FIRST_MS;
    leave();
    follow();
  };

  follow();
  document.addEventListener("visibilitychange", () => { if (document.hidden) leave(); else comeBack(); });
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => { if (event.persisted) comeBack(); });
})();
