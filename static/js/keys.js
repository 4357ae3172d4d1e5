/* Single keys, for whoever has not switched them off: they press what the page names with data-key. */
(() => {
  const typing = "input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]";

  function help() {
    const dialog = document.querySelector("dialog.help");
    if (!dialog) return false;
    dialog.showModal();
    return true;
  }

  /* The nearest search of this page, or the way to one. */
  function search() {
    const field = document.querySelector("main input[type=search]");
    if (!field) return press("/");
    field.closest("details")?.setAttribute("open", "");
    field.focus();
    return true;
  }

  function press(key) {
    const goal = document.querySelector(`[data-key="${key}"]`);
    if (!goal) return false;
    goal.closest("details")?.setAttribute("open", "");
    goal.matches("input, textarea, select") ? goal.focus() : goal.click();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (!document.querySelector("body[data-keys]") || document.querySelector("dialog[open]")) return;
    if (event.target.closest(typing)) return;
    const act = { "/": search, n: () => press("n"), "?": help }[event.key];
    if (act?.()) event.preventDefault();
  });

  document.addEventListener("click", (event) => {
    const plain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.button);
    if (plain && event.target.closest("[data-opens=keys]") && help()) event.preventDefault();
  });

  /* A link to a field means: type here. */
  const named = location.hash ? document.getElementById(location.hash.slice(1)) : null;
  if (named?.matches("input, textarea, select")) named.focus();
})();
