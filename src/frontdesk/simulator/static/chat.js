// Live updates for the chat page. The page works without this file: it only saves reloads.
const rows = document.getElementById("rows");
const scroller = document.getElementById("messages");
const composer = document.getElementById("composer");
const offline = document.getElementById("offline");
const box = document.getElementById("message");
let tag = "";
let failures = 0;

// The list is laid out in reverse, so 0 is its end and earlier messages have negative positions.
const nearBottom = () => Math.abs(scroller.scrollTop) < 120;
const toBottom = () => { scroller.scrollTop = 0; };

function aim(id, name, text, explicit) {
  if (!composer) return;
  composer.dataset.explicit = explicit ? "yes" : "no";
  document.getElementById("target").value = id;
  document.getElementById("aim").hidden = !id;
  document.getElementById("as-new-line").hidden = !id;
  document.getElementById("aim-name").textContent = name;
  document.getElementById("aim-quote").textContent = text;
  document.getElementById("aim-cancel").hidden = !explicit;
}

async function refresh() {
  try {
    const answer = await fetch(rows.dataset.live, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (answer.status === 200) {
      const first = tag === "";
      tag = answer.headers.get("ETag") || "";
      const state = await answer.json();
      const follow = first || nearBottom();
      // A focused link or button inside the list would be lost: wait for the next round.
      if (!rows.contains(document.activeElement)) {
        rows.innerHTML = state.html;
        for (const list of document.querySelectorAll(".entries")) list.innerHTML = state.chats;
      } else {
        tag = "";
      }
      if (composer && composer.dataset.explicit !== "yes") aim(state.target, state.target_name, state.target_text, false);
      if (follow && !(first && location.hash.startsWith("#om_"))) toBottom();
    }
    failures = 0;
  } catch {
    failures += 1;
  }
  offline.hidden = failures < 3;
}

async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, failures ? 3000 : 1000);
}

if (composer) {
  composer.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!box.value.trim()) return;
    const body = new URLSearchParams(new FormData(composer));
    const button = composer.querySelector("button");
    button.disabled = true;
    try {
      const answer = await fetch(composer.action, { method: "POST", body, redirect: "manual" });
      if (answer.type !== "opaqueredirect") throw new Error("refused");
      box.value = "";
      document.getElementById("as-new").checked = false;
      composer.dataset.explicit = "no";
      history.replaceState(null, "", new URL(document.getElementById("aim-cancel").href).pathname +
        new URL(document.getElementById("aim-cancel").href).search);
      tag = "";
      await refresh();
      toBottom();
    } catch {
      composer.submit(); // the plain form shows what is wrong
    } finally {
      button.disabled = false;
      box.focus();
    }
  });
  rows.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-reply]");
    if (!link) return;
    event.preventDefault();
    const bubble = link.closest(".row").querySelector(".bubble");
    aim(link.dataset.reply, link.dataset.name, bubble ? bubble.textContent.trim().slice(0, 90) : "", true);
    box.focus();
  });
  document.getElementById("aim-cancel").addEventListener("click", (event) => {
    event.preventDefault();
    composer.dataset.explicit = "no";
    tag = "";
    refresh();
    box.focus();
  });
}
box.addEventListener("keydown", (event) => {
  // Enter sends; Shift+Enter breaks the line; an Enter that ends a Chinese word does neither.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
    event.preventDefault();
    box.form.requestSubmit();
  }
});
if (!location.hash.startsWith("#om_")) toBottom();
loop();
