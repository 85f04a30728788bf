"use strict";
// What a board does when it changes while it is open: rows move to their new places, a sentence says who has risen, and
// one's own row stays marked. What arrives is the same for everybody.
(() => {
  const standings = document.getElementById("standings"), news = document.getElementById("news");
  const own = document.getElementById("own"), MOST_TOLD = 3, MOVE_MS = 600;
  if (!standings) return;
  const rows = () => [...standings.querySelectorAll("tr[data-side]")];
  const told = (row) => ({
    top: row.getBoundingClientRect().top,
    place: parseInt(row.cells[0].textContent, 10),
    value: row.querySelector(".amount span").textContent,
    name: row.querySelector(".name").textContent,
  });
  const nth = (n) => n + (n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th");
  let before = new Map();

  const mark = () => {
    if (!own?.dataset.side) return;
    const mine = rows().find((row) => row.dataset.side === own.dataset.side);
    if (!mine) return;
    mine.classList.add("own");
    const now = told(mine), line = own.querySelector(".own-place");
    line.querySelector("strong").textContent = nth(now.place);
    line.querySelector(".mono").textContent = now.value;
    line.querySelector("a")?.setAttribute("href", `#${mine.id}`);
  };
  standings.addEventListener("changing", () => {
    before = new Map(rows().map((row) => [row.dataset.side, told(row)]));
  });
  standings.addEventListener("changed", () => {
    mark();
    if (!before.size) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches, risen = [];
    for (const row of rows()) {
      const now = told(row), then = before.get(row.dataset.side);
      if (then?.value === now.value) {
        slide(row, then.top - now.top, still);
        continue;
      }
      row.classList.add("fresh");
      if (then) slide(row, then.top - now.top, still);
      if (!then || now.place <= then.place) risen.push(now);
    }
    risen.sort((one, other) => one.place - other.place);
    const said = risen.slice(0, MOST_TOLD).map((one) => `${one.name} is now ${nth(one.place)} with ${one.value}.`);
    if (said.length && news) news.textContent = said.join(" ");
  });
  const slide = (row, by, still) => {
    if (still || !by || Math.abs(by) > 3 * innerHeight || !row.animate) return;
    row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: MOVE_MS, easing: "ease" });
  };
})();
