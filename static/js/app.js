/* Small help for pages that work without it. Events are delegated; what acts is named by data- attributes. */
(() => {
  const all = (selector, root = document) => root.querySelectorAll(selector);

  /* Time. The page's clock is the server's: the browser's may be wrong, and a demo's stands still. */
  const clock = document.querySelector("time[data-clock]");
  const skew = clock ? Date.parse(clock.dateTime) - Date.now() : 0;
  const now = () => Date.now() + skew;

  const two = (large, unit, small, smallUnit) => `${large} ${unit}` + (small ? ` ${small} ${smallUnit}` : "");

  /* The twin of `relative` in webapp/html/filters.py. */
  function relative(from) {
    const left = from - now();
    const s = Math.floor(Math.abs(left) / 1000);
    if (s < 1) return "now";
    let span = `${s} s`;
    if (s >= 86400) {
      const days = Math.floor(s / 86400);
      span = two(days, days === 1 ? "day" : "days", days < 10 ? Math.floor((s % 86400) / 3600) : 0, "h");
    } else if (s >= 3600) span = two(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
    else if (s >= 60) span = `${Math.floor(s / 60)} min`;
    return left > 0 ? `in ${span}` : `${span} ago`;
  }

  function wall(zone) {
    const style = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
    const format = new Intl.DateTimeFormat("en-US", { ...style, hourCycle: "h23", timeZone: zone });
    const part = Object.fromEntries(format.formatToParts(now()).map(({ type, value }) => [type, value]));
    return `${part.weekday} ${part.day} ${part.month}, ${part.hour}:${part.minute}`;
  }

  const write = (element, text) => element.textContent === text || (element.textContent = text);

  function tick() {
    for (const time of all("time[data-relative]")) write(time, relative(Date.parse(time.dateTime)));
    for (const time of all("time[data-clock]")) write(time, wall(time.dataset.clock));
  }

  /* What only makes sense with script is hidden until here; a refused form says so in the title. */
  function prepare() {
    for (const element of all("[data-needs-script][hidden]")) element.hidden = false;
    const wrong = document.querySelector("[data-error-summary]");
    if (wrong && !document.title.startsWith("Error: ")) document.title = `Error: ${document.title}`;
    if (!wrong && document.title.startsWith("Error: ")) document.title = document.title.slice(7);
    tick();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-pick-days]");
    if (!button) return;
    const days = button.dataset.pickDays.split(" ");
    const boxes = all("[data-weekdays] input", button.closest("fieldset"));
    for (const box of boxes) box.checked = days.includes(box.value);
    boxes[0].dispatchEvent(new Event("input", { bubbles: true }));
  });

  document.addEventListener("input", ({ target }) => {
    const counter = target.dataset?.count && document.getElementById(target.dataset.count);
    if (!counter) return;
    const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
    write(counter, `${grouped([...target.value].length)} of ${grouped(counter.dataset.most)}`);
  });

  function remark(words) {
    const line = document.createElement("p");
    const box = document.createElement("div");
    line.className = "remark";
    line.textContent = words;
    box.className = "notice notice--bad";
    box.append(line);
    document.getElementById("flash")?.replaceChildren(box);
  }

  document.addEventListener("htmx:error", ({ detail }) => {
    /* What the page asks by itself is told by how fresh it says it is. */
    if (detail.ctx && !detail.ctx.sourceElement?.matches("[hx-sse\\:connect], [hx-trigger*=every]"))
      remark("The server did not answer. Nothing was lost here; try again.");
  });

  document.addEventListener("htmx:after:swap", ({ detail }) => {
    prepare();
    /* A new page by HX-Location begins at its top, for eyes and for screen readers. */
    if (detail.ctx.target === document.body) {
      scrollTo(0, 0);
      document.getElementById("main")?.focus({ preventScroll: true });
    }
  });

  document.addEventListener("carillon:tick", tick);
  prepare();
  setInterval(tick, 1000);
})();
