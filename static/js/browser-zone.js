/* Where a form asks for the browser's own zone, say it; without script the field stays empty and nothing is lost. */
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
  for (const field of document.querySelectorAll("input[data-browser-zone]")) field.value = zone;
})();
