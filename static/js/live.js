/* How fresh the page is, in words. Regions also ask by themselves, so a cut delays news but loses none. */
(() => {
  const AGAIN = 1500;
  const AGAIN_WHEN_FULL = 15000;
  const FORGIVEN = 1500;
  const all = (selector) => document.querySelectorAll(selector);
  const clock = document.querySelector("time[data-clock]");
  const skew = clock ? Date.parse(clock.dateTime) - Date.now() : 0;
  const stream = () => document.querySelector("[hx-sse\\:connect]");

  let state = "drawn";
  let news = Date.now();
  let cut;
  let lost = false;
  let standing = false;

  function show(next, at = news) {
    clearTimeout(cut);
    cut = undefined;
    state = next;
    news = at;
    const instant = new Date(news + skew).toISOString();
    for (const element of all("[data-live]")) element.hidden = element.dataset.live !== state;
    for (const time of all("time[data-news]")) time.dateTime = instant;
    document.dispatchEvent(new CustomEvent("carillon:tick"));
  }

  /* A short break is nobody's concern. What is seen is as old as the last moment at which the stream stood. */
  function broken() {
    if (state === "cut" || cut) return;
    const seen = state === "on" ? Date.now() : news;
    cut = setTimeout(() => show("cut", seen), FORGIVEN);
  }

  function stands() {
    const back = state === "cut";
    standing = true;
    show("on", Date.now());
    if (back) htmx.trigger(document.body, "reconnected");
    /* What was missed is no longer kept: every region fetches itself, spread out, as many pages do so at once. */
    if (lost) setTimeout(() => htmx.trigger(document.body, "lost"), 1500 * Math.random());
    lost = false;
  }

  /* A region has asked. A line that is dead without saying so shows here first. */
  function heard(status, ctx) {
    const replaced = String(ctx.status).includes("AbortError") && ctx.request?.signal?.reason !== "timeout";
    if (!status && !replaced && ctx.sourceElement.matches("[hx-trigger*=every]")) broken();
    else if (status && status < 500 && state === "cut" && standing) show("on", Date.now());
    else if (status && status < 500 && (state === "slow" || state === "cut")) show(state, Date.now());
  }

  const again = (milliseconds) =>
    setTimeout(() => stream() && htmx.trigger(stream(), "again"), milliseconds * (0.7 + 0.6 * Math.random()));

  document.addEventListener("htmx:sse:after:connection", ({ detail: { connection } }) => {
    const full = connection.status === 204;
    connection.config.reconnectDelay = full ? AGAIN_WHEN_FULL : 500;
    connection.config.reconnectMaxDelay = full ? AGAIN_WHEN_FULL : 1500;
    if (full) show("slow", Date.now());
    else stands();
  });
  document.addEventListener("htmx:sse:after:message", () => show("on", Date.now()));
  document.addEventListener("htmx:sse:error", ({ detail }) => {
    standing = false;
    if (state !== "slow") broken();
    if (detail.status === 410) {
      detail.connection.lastEventId = "";
      lost = true;
    }
    if (detail.status === 401) show("out");
  });
  document.addEventListener("htmx:sse:close", ({ detail }) => {
    standing = false;
    if (detail.reason === "removed" || detail.reason === "cleanup") return;
    broken();
    again(AGAIN);
  });

  /* A first connection that failed, or was answered with something else than a stream, is tried again. */
  document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
    const status = ctx.response?.status ?? 0;
    if (ctx.sourceElement !== stream()) return heard(status, ctx);
    if (status === 200) return;
    if (status === 204) show("slow", Date.now());
    else if (status === 401) show("out");
    else broken();
    again(status === 204 || (status >= 400 && status < 500) ? AGAIN_WHEN_FULL : AGAIN);
  });
})();
