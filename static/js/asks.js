/* Approvals by keyboard: j and k or the arrows move a frame that is plain to see; a and d answer what is in it. */
(() => {
  const asks = () => [...document.querySelectorAll("[data-ask]")];

  /* The one in the frame: where the focus is, never simply the first on the page. */
  const framed = () => document.activeElement?.closest("[data-ask]") ?? null;

  function move(step) {
    const all = asks();
    const at = all.indexOf(framed());
    const goal = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))];
    goal?.focus();
    goal?.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !asks().length) return;
    if (!document.querySelector("body[data-keys]")) return;
    if (event.target.closest("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]")) return;
    const frame = framed();
    const steps = { j: 1, k: -1, ...(frame ? { ArrowDown: 1, ArrowUp: -1 } : {}) };
    const answer = { a: "approve", d: "deny" }[event.key];
    if (event.key in steps) {
      event.preventDefault();
      move(steps[event.key]);
    } else if (answer && frame) {
      event.preventDefault();
      frame.querySelector(`[data-answer=${answer}]`)?.click();
    }
  });
})();
