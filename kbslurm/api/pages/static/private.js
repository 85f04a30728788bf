"use strict";
// Browsers keep pages in memory for the back button, also those that they mustn't store. Whoever was signed in may have
// been signed out or banned since, so such a page isn't shown again but asked for.
addEventListener("pagehide", (event) => { if (event.persisted) document.documentElement.hidden = true; });
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
