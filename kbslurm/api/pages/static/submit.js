"use strict";
// The page to submit from: an editor with colours and line numbers over its textarea, and files that are dropped there.
// Without this it is a textarea and a field for files, which do the same.
(() => {
  const fields = [...document.querySelectorAll(".editor textarea")], main = document.getElementById("source-1");
  if (!main) return;
  const files = document.getElementById("file"), told = document.getElementById("chosen");
  const name = document.getElementById("name");
  const COLOURED_CAP = 60000, NUMBERED_CAP = 20000, TYPED_CAP = 20000, TEXT_CAP = 1000000; // more would lag
  const INDENT = "    ";

  // ------------------------------------------------------------------------------------------------ colours
  const PYTHON = "and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield match case None True False";
  const CPP = "alignas auto bool break case char class const constexpr continue default delete do double else enum explicit extern false float for goto if inline int long namespace new nullptr operator private public register return short signed sizeof static static_cast reinterpret_cast struct switch template this true typedef typename union unsigned using virtual void volatile while half __global__ __device__ __host__ __shared__ __constant__ __restrict__ __launch_bounds__ __syncthreads";
  const words = (text) => new Set(text.split(" "));
  const LANGUAGES = {
    py: {
      known: words(PYTHON),
      parts: /(#[^\n]*)|("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|(^[ \t]*@[\w.]+)|(\b\d[\w.]*)|([A-Za-z_]\w*)/gm,
    },
    cu: {
      known: words(CPP),
      parts: /(\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|(^[ \t]*#\w+)|(\b\d[\w.]*)|([A-Za-z_]\w*)/gm,
    },
  };
  const CLASSES = ["c-comment", "c-string", "c-meta", "c-number"];
  const language = (field) => {
    const called = field.dataset.name ?? name.value;
    return LANGUAGES[/\.py$/i.test(called) ? "py" : /\.(cu|cuh|cpp|cc|c|h|hh|hpp|inl|hip)$/i.test(called) ? "cu" : field.dataset.lang];
  };
  const piece = (text, css) => {
    const made = document.createElement("span");
    made.className = css;
    made.textContent = text;
    return made;
  };
  const coloured = (text, field) => {
    const spoken = language(field), made = document.createDocumentFragment();
    if (!spoken) return `${text}\n`;
    const { known, parts } = spoken;
    let at = 0, named = false;
    for (const found of text.matchAll(parts)) {
      const word = found[5];
      const css = word === undefined ? CLASSES.find((_, n) => found[n + 1] !== undefined) : known.has(word) ? "c-keyword" : named ? "c-name" : "";
      if (word !== undefined) named = word === "def" || word === "class" || word === "struct";
      if (!css) continue;
      made.append(text.slice(at, found.index), piece(found[0], css));
      at = found.index + found[0].length;
    }
    made.append(`${text.slice(at)}\n`);
    return made;
  };

  // ------------------------------------------------------------------------------------------------ the editor
  const edited = (field) => {
    const editor = field.parentElement;
    const seen = document.createElement("pre"), numbers = document.createElement("pre");
    seen.className = "seen";
    numbers.className = "numbers";
    for (const one of [seen, numbers]) one.setAttribute("aria-hidden", "true");
    editor.prepend(seen);
    editor.append(numbers);
    let lines = 0, due = 0;
    const follow = () => {
      seen.scrollTop = numbers.scrollTop = field.scrollTop;
      seen.scrollLeft = field.scrollLeft;
    };
    const draw = () => {
      due = 0;
      const text = field.value, live = text.length <= COLOURED_CAP;
      editor.classList.toggle("live", live);
      seen.replaceChildren(live ? coloured(text, field) : "");
      const count = text.split("\n").length;
      if (count !== lines) {
        lines = count;
        numbers.textContent = count > NUMBERED_CAP ? "" : `${Array.from({ length: count }, (_, n) => n + 1).join("\n")}\n`;
      }
      // What the textarea can scroll, what is drawn over it must be able to, too.
      seen.style.width = `${field.clientWidth}px`;
      seen.style.height = numbers.style.height = `${field.clientHeight}px`;
      follow();
    };
    const soon = () => { due ||= requestAnimationFrame(draw); };
    // As if it were typed, so that it can be undone.
    const type = (text) => {
      if (text.length > TYPED_CAP || !document.execCommand("insertText", false, text)) {
        field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
        soon();
      }
    };
    const shift = (outwards) => {
      const { value, selectionStart, selectionEnd } = field;
      const from = value.lastIndexOf("\n", selectionStart - 1) + 1;
      const to = selectionEnd > selectionStart && value[selectionEnd - 1] === "\n" ? selectionEnd - 1 : selectionEnd;
      const before = value.slice(from, to);
      const after = outwards ? before.replace(/^(?: {1,4}|\t)/gm, "") : before.replace(/^/gm, INDENT);
      if (after === before) return;
      field.setSelectionRange(from, to);
      type(after);
      const first = Math.max(from, selectionStart + (outwards ? -(before.match(/^(?: {1,4}|\t)/)?.[0].length ?? 0) : INDENT.length));
      if (selectionStart === selectionEnd) field.setSelectionRange(first, first);
      else field.setSelectionRange(from, from + after.length);
    };
    let leaving = false; // Escape, then Tab: for whoever has no other way out than the keyboard
    field.addEventListener("keydown", (event) => {
      if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") { leaving = true; return; }
      if (event.key === "Tab" && !leaving) {
        event.preventDefault();
        if (event.shiftKey || field.value.slice(field.selectionStart, field.selectionEnd).includes("\n")) shift(event.shiftKey);
        else type(INDENT);
      }
      if (event.key === "Enter" && !event.shiftKey) {
        const line = field.value.slice(field.value.lastIndexOf("\n", field.selectionStart - 1) + 1, field.selectionStart);
        const indent = /^[ \t]*/.exec(line)[0] + (/[:{]\s*$/.test(line) ? INDENT : "");
        if (indent) { event.preventDefault(); type(`\n${indent}`); }
      }
      if (event.key !== "Shift") leaving = false;
    });
    field.addEventListener("input", soon);
    field.addEventListener("scroll", follow);
    name?.addEventListener("input", soon);
    new ResizeObserver(soon).observe(field);
    draw();
    return { type, soon };
  };
  const editors = fields.map(edited);
  document.getElementById("keys").textContent = "Tab indents; Escape, then Tab, leaves the editor.";

  // ------------------------------------------------------------------------------------------------ the queue
  // It is asked for again while somebody looks; and with it the form stays one of whoever is signed in now.
  const form = document.getElementById("submission"), QUEUE_MS = 15000;
  const refresh = async () => {
    setTimeout(refresh, QUEUE_MS);
    if (document.hidden) return;
    let fresh;
    try {
      const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch { return; }
    for (const one of document.querySelectorAll("[data-queue]")) {
      const now = [...fresh.querySelectorAll("[data-queue]")].find((other) => other.dataset.queue === one.dataset.queue);
      if (now && now.textContent !== one.textContent) one.textContent = now.textContent;
    }
    const token = fresh.querySelector("#submission [name=csrf]");
    if (form && token) form.elements.csrf.value = token.value;
  };
  setTimeout(refresh, QUEUE_MS);

  // ------------------------------------------------------------------------------------------------ files
  if (!files) return;
  // What is too large would be refused unread, and what is written be lost.
  form.addEventListener("submit", (event) => {
    if (files.files.length) return;
    const size = fields.reduce((sum, one) => sum + new TextEncoder().encode(one.value).length, 0);
    if (size <= Number(form.dataset.cap)) return;
    event.preventDefault();
    say(`What is written has ${size.toLocaleString("en")} bytes, over the limit of ${Number(form.dataset.cap).toLocaleString("en")}.`);
    told.scrollIntoView({ block: "center" });
  });
  const say = (words) => { told.textContent = words; };
  const isText = (file) => /\.(py|cu|cuh|cpp)$/i.test(file.name) && file.size <= TEXT_CAP;
  // One source file is read into the editor, where it can be changed; several, or a zip, are submitted as they are.
  const taken = async () => {
    const chosen = [...files.files];
    if (chosen.length !== 1 || !isText(chosen[0]) || !name) {
      const what = chosen.length === 1 ? chosen[0].name : `${chosen.length} files`;
      say(chosen.length ? `${what} will be submitted instead of what is written.` : "");
      return;
    }
    let text;
    try { text = new TextDecoder("utf-8", { fatal: true }).decode(await chosen[0].arrayBuffer()); } catch { return; }
    main.focus();
    main.select();
    name.value = chosen[0].name;
    editors[0].type(text);
    main.setSelectionRange(0, 0);
    main.scrollTop = 0;
    files.value = "";
    say(`${name.value} is in the editor.`);
    editors[0].soon();
  };
  files.addEventListener("change", taken);
  const drops = document.getElementById("drops");
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  drops.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    drops.classList.add("dropping");
  });
  for (const kind of ["dragleave", "drop"]) drops.addEventListener(kind, () => drops.classList.remove("dropping"));
  drops.addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    files.files = event.dataTransfer.files;
    taken();
  });
  addEventListener("pageshow", () => { editors.forEach((one) => one.soon()); if (files.files.length) taken(); });
})();
