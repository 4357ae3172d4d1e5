/* A select of time zones as a searchable combobox (APG: editable, list autocomplete). The select stays the field. */
(() => {
  const MOST = 40;
  const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").replace(/[_/]/g, " ").toLowerCase();
  let made = 0;

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  class ZoneSelect extends HTMLElement {
    connectedCallback() {
      if (this.input) return;
      this.select = this.querySelector("select");
      this.zones = [...this.select.options].map((option) => ({
        option,
        label: option.dataset.label,
        now: option.dataset.now,
        aliases: (option.dataset.aliases ?? "").split("|").filter(Boolean),
        words: plain([option.dataset.label, option.value, option.dataset.now, option.dataset.aliases ?? ""].join(" ")),
      }));
      this.found = [];
      this.build();
      this.show();
      this.offerBrowserZone();
    }

    build() {
      const id = this.select.id;
      const list = `zone-list-${++made}`;
      this.select.hidden = true;
      this.select.removeAttribute("id");
      this.input = make("input", { id, role: "combobox", "aria-expanded": "false", "aria-controls": list, "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false" });
      this.meta = make("span", { class: "combobox__meta", id: `${list}-meta` });
      this.list = make("ul", { class: "combobox__list", id: list, role: "listbox", "aria-label": "Time zones", hidden: "" });
      const about = this.select.getAttribute("aria-describedby");
      this.input.setAttribute("aria-describedby", [about, this.meta.id].filter(Boolean).join(" "));
      if (this.select.ariaInvalid) this.input.ariaInvalid = this.select.ariaInvalid;
      this.append(make("div", { class: "combobox" }, make("div", { class: "combobox__box" }, this.input, this.meta), this.list));
      this.input.addEventListener("input", (event) => (event.stopPropagation(), this.search()));
      this.input.addEventListener("change", (event) => event.stopPropagation());
      this.input.addEventListener("keydown", (event) => this.key(event));
      this.input.addEventListener("click", () => this.search(""));
      this.input.addEventListener("blur", () => this.show());
      this.list.addEventListener("pointerdown", (event) => event.preventDefault());
      this.list.addEventListener("click", (event) => this.choose([...this.list.children].indexOf(event.target.closest("li"))));
    }

    /* Closed, with the name of what is chosen. */
    show() {
      const chosen = this.zones[this.select.selectedIndex];
      this.list.hidden = true;
      this.input.ariaExpanded = "false";
      this.input.removeAttribute("aria-activedescendant");
      this.input.value = chosen.label;
      this.meta.textContent = `${chosen.option.value} · ${chosen.now}`;
    }

    search(text = this.input.value) {
      const words = plain(text).split(/\s+/).filter(Boolean);
      const rank = ({ label, words: all }) => (plain(label).startsWith(words[0] ?? "") ? 0 : all.includes(` ${words[0]}`) ? 1 : 2);
      this.found = this.zones.filter((zone) => words.every((word) => zone.words.includes(word)));
      this.found = this.found.sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
      this.meta.textContent = this.found.length ? `${this.found.length === MOST ? "many" : this.found.length} found` : "none found";
      this.list.replaceChildren(...this.found.map((zone, index) => this.item(zone, index, words)));
      this.list.hidden = !this.found.length;
      this.input.ariaExpanded = String(!this.list.hidden);
      this.mark(words.length && this.found.length ? 0 : -1);
    }

    item(zone, index, words) {
      const alias = zone.aliases.find((name) => words.length && words.every((word) => plain(name).includes(word)));
      const inLabel = words.every((word) => plain(zone.label).includes(word));
      const name = alias && !inLabel ? `${alias} (${zone.label})` : zone.label;
      const item = make("li", { role: "option", id: `${this.list.id}-${index}`, "aria-selected": "false" });
      const at = words.length ? plain(name).indexOf(words[0]) : -1;
      const end = at + (words[0]?.length ?? 0);
      const text = make("b");
      if (at < 0 || plain(name).length !== name.length) text.append(name);
      else text.append(name.slice(0, at), make("mark", {}, name.slice(at, end)), name.slice(end));
      item.append(text, make("span", {}, `${zone.option.value} · ${zone.now}`));
      return item;
    }

    mark(index) {
      this.active = index;
      for (const [at, item] of [...this.list.children].entries()) item.ariaSelected = String(at === index);
      if (index < 0) return this.input.removeAttribute("aria-activedescendant");
      this.input.setAttribute("aria-activedescendant", `${this.list.id}-${index}`);
      this.list.children[index].scrollIntoView({ block: "nearest" });
    }

    choose(index) {
      if (index < 0) return;
      this.found[index].option.selected = true;
      this.show();
      for (const name of ["input", "change"]) this.select.dispatchEvent(new Event(name, { bubbles: true }));
    }

    key(event) {
      const open = !this.list.hidden;
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && !open) this.search("");
      else if (step) this.mark((this.active + step + this.found.length) % this.found.length);
      else if (event.key === "Enter" && open) this.choose(this.active);
      else if (event.key === "Escape" && open) this.show();
      else return;
      event.preventDefault();
    }

    offerBrowserZone() {
      const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
      const match = this.zones.find(({ option, aliases }) => option.value === zone || aliases.includes(zone));
      if (!match || match.option.selected) return;
      const button = make("button", { type: "button", class: "button button--quiet button--small" }, "use that");
      const hint = make("p", { class: "field__hint" }, `Your browser says ${zone}: `, button);
      button.addEventListener("click", () => {
        this.found = [match];
        this.choose(0);
        hint.remove();
        this.input.focus();
      });
      this.append(hint);
    }
  }

  customElements.define("zone-select", ZoneSelect);
})();
