// The page: its state, its controls, and the view that is shown.
import { Data } from "./data.js";
import { Wording } from "./wording.js";
import { Colours } from "./colours.js";
import { clamp, clear, el, focusIn, refocus } from "./elements.js";
import { weightOf } from "./codes.js";
import { listen } from "./keyboard.js";
import { shortened } from "./layout.js";
import { printFigure, savePng, saveSvg } from "./saving.js";
import { shownFacts } from "./shown.js";
import { SAID, VIEWS, viewsOf } from "./views.js";

// a block that nothing follows yet may not have been read to its end
function textOf(id) {
  const block = document.getElementById(id);
  const isWhole = block && (document.readyState !== "loading" || block.nextElementSibling);
  return isWhole ? block.textContent : null;
}

class App {
  constructor() {
    const header = JSON.parse(textOf("header"));
    this.data = new Data(header, textOf);
    this.words = new Wording(JSON.parse(textOf("words")), header.lang);
    this.colours = new Colours(header.colours);
    const sample = Math.max(0, (header.carried ?? []).indexOf(header.sample));
    const given = asked();
    if (given.sample !== undefined) given.sample = Math.max(0, header.carried.indexOf(given.sample));
    const opening = { view: "overview", sample, layer: 0, head: 0, token: 0, ...header.opening, ...given };
    this.state = this.allowed({ scale: "log", joined: false, ...opening, heads: new Set() });
    this.state.heads = new Set([this.state.head]);
    this.data.sample = this.state.sample;
    this.later = null;
    this.view = null;
    this.mounted = null;
  }

  say(key, values) {
    return this.words.say(key, values);
  }

  // for those who hear the page
  tell(text) {
    document.getElementById("status").textContent = text;
  }

  // a page may show steps alone
  hasMaps() {
    return this.data.layers.length > 0;
  }

  queries() {
    return this.data.layers[this.state.layer].lengths[0];
  }

  width(root) {
    return Math.max(200, root.clientWidth);
  }

  views() {
    return viewsOf(this.data.header, this.hasMaps());
  }

  canJoin() {
    const { layer } = this.state;
    return this.data.isSingle(layer) && ["queries", "keys"].every((side) => this.data.side(layer, side).words);
  }

  // the number of a sample, and how its own tokens begin
  sampleName(n) {
    const { others, tokens } = this.data.header.sides[this.data.layers[0].queries];
    const beginning = others ? (n > 0 ? others[n - 1].tokens : tokens).slice(0, 8) : [];
    const said = beginning.map((token) => token.trim()).join(" ");
    return said ? `${n} · ${shortened(said, 28)}` : String(n);
  }

  // what a figure is called: of a batch, the sample too
  figureName(said) {
    return this.data.header.samples > 1 ? `${said} · ${this.say("page.sample")} ${this.data.sampled}` : said;
  }

  // a state within what there is
  allowed(state) {
    if (!this.hasMaps()) return { ...state, view: "steps", sample: 0, layer: 0, head: 0, token: 0 };
    const sample = clamp(Math.trunc(state.sample) || 0, 0, this.data.header.carried.length - 1);
    const layer = clamp(Math.trunc(state.layer) || 0, 0, this.data.layers.length - 1);
    const { heads, lengths } = this.data.layers[layer];
    const view = this.views().includes(state.view) ? state.view : "overview";
    return { ...state, view, sample, layer, head: clamp(Math.trunc(state.head) || 0, 0, heads - 1), token: clamp(Math.trunc(state.token) || 0, 0, lengths[0] - 1) };
  }

  set(patch) {
    const before = this.state;
    this.state = this.allowed({ ...before, ...patch });
    this.data.sample = this.state.sample;
    const heads = this.data.layers[this.state.layer]?.heads ?? 1;
    this.state.heads = new Set([...this.state.heads].filter((head) => head < heads));
    if (patch.head !== undefined && !patch.heads && this.state.view === "heads" && before.view === "heads") this.state.heads = new Set([this.state.head]);
    this.render();
  }

  // to the next or an earlier token; along an axis of words, to the next word
  step(by, along = null) {
    const next = along ? along.first[clamp(along.of(this.state.token) + by, 0, along.first.length - 1)] : this.state.token + by;
    this.set({ token: next });
  }

  nextHead(by) {
    if (!this.hasMaps()) return;
    const { heads } = this.data.layers[this.state.layer];
    this.set({ head: (this.state.head + by + heads) % heads });
  }

  nextLayer(by) {
    if (!this.hasMaps()) return;
    this.set({ layer: (this.state.layer + by + this.data.layers.length) % this.data.layers.length });
  }

  nextSample(by) {
    const count = this.data.header.carried?.length ?? 0;
    if (count < 2) return;
    this.set({ sample: (this.state.sample + by + count) % count });
    this.tell(this.say("page.fact.sample", { sample: this.data.sampled, samples: this.data.header.samples }));
  }

  waiting(root) {
    root.dataset.waiting = "true";
    this.tell(this.say("page.waiting"));
  }

  render() {
    const { view } = this.state;
    document.body.dataset.view = view;
    const main = document.getElementById("main");
    if (this.mounted !== view) {
      this.view?.leave?.();
      const root = el("div", { class: `view ${view}`, id: "view", role: "tabpanel", "aria-labelledby": `tab-${view}` });
      clear(main).append(root);
      this.view = VIEWS[view](this, root);
      this.mounted = view;
    }
    const root = document.getElementById("view");
    delete root.dataset.waiting;
    const focused = focusIn(root);
    this.view.update();
    refocus(root, focused);
    this.controls();
    clearTimeout(this.later);
    // browsers warn of an address that changes with every key
    this.later = setTimeout(() => remember(), 200);
  }

  // paper is light, whatever the screen is
  printLight() {
    let before = null;
    window.addEventListener("beforeprint", () => {
      before = document.documentElement.dataset.theme ?? "";
      document.documentElement.dataset.theme = "light";
      this.render();
    });
    window.addEventListener("afterprint", () => {
      if (before) document.documentElement.dataset.theme = before;
      else delete document.documentElement.dataset.theme;
      this.render();
    });
  }

  controls() {
    const { view, layer, head, token, joined } = this.state;
    const { header, layers } = this.data;
    for (const name of this.views()) {
      const tab = document.getElementById(`tab-${name}`);
      tab.textContent = this.say(SAID[name]);
      tab.setAttribute("aria-selected", String(name === view));
      tab.tabIndex = name === view ? 0 : -1;
    }
    reveal(document.getElementById("tabs"), document.getElementById(`tab-${view}`));
    if (this.hasMaps()) {
      const { carried } = header;
      document.getElementById("sampling").hidden = carried.length < 2;
      options("sample", carried.map((n) => this.sampleName(n)), this.state.sample);
      options("layer", layers.map((each, n) => (each.name ? `${n} · ${each.name}` : String(n))), layer);
      options("head", Array.from({ length: layers[layer].heads }, (_, n) => String(n)), head);
      const input = document.getElementById("token");
      input.max = String(this.queries() - 1);
      if (document.activeElement !== input) input.value = String(token);
      document.getElementById("joined").checked = joined;
      document.getElementById("joining").hidden = !this.canJoin() || !["heads", "map"].includes(view);
    }
    document.getElementById("title").textContent = header.title;
    document.getElementById("subtitle").textContent = header.text;
    document.getElementById("subtitle").title = header.text;
    const language = document.getElementById("language");
    language.textContent = this.words.lang === "zh" ? "English" : "中文";
    language.lang = this.words.lang === "zh" ? "en" : "zh-Hans";
    // what is seen is part of what is said, so that it can be asked for by voice
    language.setAttribute("aria-label", `${language.textContent}: ${this.say("page.language")}`);
    document.getElementById("theme").textContent = this.say(this.colours.theme === "dark" ? "page.light" : "page.dark");
    this.words.apply(document.body);
    shownFacts(this, document.getElementById("shown"));
    const hints = [this.say(this.hasMaps() ? "page.hints" : "page.hints.steps", { views: this.views().length })];
    if ((header.carried ?? []).length > 1) hints.push(this.say("page.hints.samples"));
    document.getElementById("hints").textContent = hints.join(" · ");
  }

  start() {
    const tabs = document.getElementById("tabs");
    for (const name of this.views()) {
      tabs.append(el("button", { type: "button", id: `tab-${name}`, role: "tab", "aria-controls": "view", on: { click: () => this.set({ view: name }) } }));
    }
    const on = (id, event, run) => document.getElementById(id).addEventListener(event, run);
    on("sample", "change", (event) => this.set({ sample: Number(event.target.value) }));
    on("layer", "change", (event) => this.set({ layer: Number(event.target.value) }));
    on("head", "change", (event) => this.set({ head: Number(event.target.value) }));
    on("token", "change", (event) => this.set({ token: Number(event.target.value) }));
    on("joined", "change", (event) => this.set({ joined: event.target.checked }));
    on("language", "click", () => {
      [this.words.lang] = this.words.others;
      this.render();
    });
    on("theme", "click", () => {
      document.documentElement.dataset.theme = this.colours.theme === "dark" ? "light" : "dark";
      this.render();
    });
    on("save-png", "click", () => savePng(this));
    on("save-svg", "click", () => saveSvg(this));
    on("print", "click", () => printFigure(this));
    listen(this, this.views());
    window.addEventListener("resize", () => this.render());
    this.printLight();
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.render());
    // the numbers of the layers stand below this script, and are read while the overview is looked at
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => this.render());
    this.render();
  }
}

// what the address asks for: #view=map&layer=3
function asked() {
  const given = new URLSearchParams(window.location.hash.slice(1));
  const found = {};
  if (given.has("view")) found.view = given.get("view");
  for (const name of ["sample", "layer", "head", "token"]) if (given.has(name)) found[name] = Number(given.get(name));
  return found;
}

function remember() {
  try {
    window.history.replaceState(null, "", `#${new URLSearchParams(shownNow())}`);
  } catch {
    // a page within another may have no address of its own
  }
}

// scroll a row of tabs, where it is too narrow, to the one that is chosen
function reveal(row, tab) {
  const over = tab.offsetLeft - row.offsetLeft;
  if (over < row.scrollLeft) row.scrollLeft = over;
  if (over + tab.offsetWidth > row.scrollLeft + row.clientWidth) row.scrollLeft = over + tab.offsetWidth - row.clientWidth;
}

// what is shown, as the address says it
function shownNow() {
  const { view, layer, head, token } = app.state;
  return { view, ...(app.data.header.samples > 1 ? { sample: app.data.sampled } : {}), layer, head, token };
}

function options(id, names, chosen) {
  const select = document.getElementById(id);
  const now = [...select.options].map((option) => option.textContent);
  if (now.length !== names.length || now.some((name, n) => name !== names[n])) {
    clear(select).append(...names.map((name, n) => el("option", { value: String(n) }, name)));
  }
  select.value = String(chosen);
}

const app = new App();
app.start();

// for the console: what is shown, and the numbers of the page
window.headwise = {
  header: app.data.header,
  shown: shownNow,
  weight: (layer, head, query, key) => app.data.weight(layer, head, query, key),
  codes: (layer, head) => Array.from(app.data.codes(layer, head)),
  row: (layer, head, query) => Array.from(app.data.row(layer, head, query).weights),
  weightOf,
};
