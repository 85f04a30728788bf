"use strict";
// Buttons that copy what they name by `data-copy`: the text of that element without its line numbers, or a field's.
(() => {
  const SHOWN_MS = 2000;
  const textOf = (element) => {
    if ("value" in element) return element.value;
    const copied = element.cloneNode(true);
    copied.querySelectorAll(".at").forEach((one) => one.remove());
    return copied.textContent;
  };
  // Where a page isn't served securely there is no clipboard, but what is selected can be copied.
  const put = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "unseen";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) throw new Error("refused");
  };
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const words = button.textContent;
    button.classList.add("ready");
    button.addEventListener("click", async () => {
      const element = document.getElementById(button.dataset.copy);
      if (!element) return;
      try { await put(textOf(element)); button.textContent = "Copied"; } catch { button.textContent = "Not allowed"; }
      button.focus();
      setTimeout(() => { button.textContent = words; }, SHOWN_MS);
    });
  }
})();
