// Row: what one token looks at: the text tinted by its weights, the strongest keys, entropy, and the row as bars.
import { EMPTY, MASKED, entropyOf, formatWeight, kindOf, placeOf } from "./codes.js";
import { clear, el, sized } from "./elements.js";
import { CanvasPen, shifted } from "./pen.js";
import { TALL, drawChart } from "./chart.js";
import { shortened } from "./layout.js";
import { legend } from "./legend.js";
import { pictureOf } from "./picture.js";

const MOST_TOKENS = 400;
const MOST_KEYS = 12;

export function rowView(app, root) {
  const facts = el("div", { class: "facts" });
  const text = el("div", { class: "text", role: "group" });
  const from = el("div", { class: "text from", role: "group" });
  const top = el("ol", { class: "top" });
  const canvas = el("canvas", { id: "bars", role: "img" });
  const key = el("div", { class: "legend" });
  const heading = el("h2", {});
  const fromHeading = el("h2", {});
  const topHeading = el("h2", {});
  const stepper = el("div", { class: "stepper" });
  const frame = el("div", { class: "picture" });
  const showPicture = app.data.header.picture ? pictureOf(app, frame) : null;
  root.append(stepper, facts, frame, fromHeading, from, heading, text, key, topHeading, top, canvas);
  for (const [id, sign, by] of [["token-back", "←", -1], ["token-next", "→", 1]]) {
    stepper.append(el("button", { type: "button", id, on: { click: () => app.step(by) } }, sign));
  }
  const name = el("span", { class: "current" });
  stepper.insertBefore(name, stepper.lastChild);
  let row = null;
  const { generated } = app.data.header;
  const slider = el("input", { type: "range", id: "generation", min: "0", max: String(generated.length - 1), step: "1", on: { input: () => app.set({ token: generated[Number(slider.value)].query }) } });
  const reached = el("span", {});
  if (generated.length) root.insertBefore(el("div", { class: "player" }, slider, reached), stepper);

  // the step of a generation whose query the row is
  function generation() {
    const { queries } = app.data.header.layers[app.state.layer];
    const at = generated.findIndex(({ query, side }) => query === app.state.token && side === queries);
    if (at >= 0) slider.value = String(at);
    reached.textContent = at < 0 ? "" : app.say("page.generated.step", { step: at + 1, count: generated.length });
    slider.setAttribute("aria-label", reached.textContent || app.say("page.generated"));
    return generated[at];
  }

  function tokens(into, which, tint) {
    const { layer, token } = app.state;
    const { tokens: all } = app.data.side(layer, which);
    const count = app.data.layers[layer].lengths[which === "queries" ? 0 : 1];
    const first = Math.max(0, Math.min(count - MOST_TOKENS, token - MOST_TOKENS / 2));
    const last = Math.min(count, first + MOST_TOKENS);
    clear(into);
    if (first > 0) into.append(el("span", { class: "gap" }, app.say("page.before", { count: first })));
    for (let n = first; n < last; n += 1) {
      const isChosen = which === "queries" && n === token;
      const isQuery = which === "queries" || isSame(layer);
      const piece = el(isQuery ? "button" : "span", { class: "piece", dir: "auto" }, all[n] ?? String(n));
      if (isQuery) {
        piece.type = "button";
        piece.addEventListener("click", () => app.set({ token: n }));
      }
      if (tint) tinted(piece, n);
      piece.classList.toggle("chosen", isChosen || (which === "keys" && isSame(layer) && n === token));
      into.append(piece);
    }
    if (last < count) into.append(el("span", { class: "gap" }, app.say("page.after", { count: count - last })));
  }

  function tinted(piece, n) {
    const entry = Math.floor(n / row.step);
    const kind = kindOf(row.codes[entry]);
    const weight = row.weights[entry];
    piece.classList.add(kind);
    if (kind === "weight") {
      const at = placeOf(weight, app.state.scale);
      piece.style.background = app.colours.at(at);
      piece.style.color = app.colours.ink(at);
    } else {
      piece.style.background = app.colours.outside(kind);
      if (kind === "nan") piece.style.color = app.colours.inkOutside(kind);
    }
    piece.title = kind === "weight" ? formatWeight(weight) : app.say(saidOf(kind));
    piece.dataset.weight = kind === "weight" ? String(weight) : kind;
  }

  function strongest() {
    clear(top);
    const { layer } = app.state;
    const order = Array.from(row.weights.keys()).filter((n) => row.weights[n] > 0);
    order.sort((a, b) => row.weights[b] - row.weights[a]);
    for (const n of order.slice(0, MOST_KEYS)) {
      const meter = el("span", { class: "meter" });
      meter.style.setProperty("--share", row.weights[n]);
      top.append(el("li", {}, el("span", { class: "place" }, String(n * row.step)), el("b", { dir: "auto" }, nameOf(layer, n)), meter, el("span", { class: "weight" }, formatWeight(row.weights[n]))));
    }
    topHeading.textContent = order.length ? app.say("page.row.top") : app.say("page.row.none");
  }

  function nameOf(layer, n) {
    const start = app.data.name(layer, "keys", n * row.step);
    const more = Math.min(row.step, app.data.layers[layer].lengths[1] - n * row.step) - 1;
    return more > 0 ? `${start} … +${more}` : start;
  }

  function told() {
    const { layer, head, token } = app.state;
    const said = [];
    const next = generation();
    if (next) said.push([app.say("page.generated"), app.say("page.generated.value", { text: next.text, probability: next.probability.toFixed(3) })]);
    const isNan = row.weights.some((weight) => Number.isNaN(weight));
    const isEmpty = row.codes[0] === EMPTY;
    const [queries, keys] = app.data.layers[layer].block;
    if (isEmpty) said.push([app.say("page.empty"), app.say("page.empty.long")]);
    if (isNan) said.push(["NaN", app.say("page.nan.long")]);
    if (isEmpty) return clear(facts).append(...said.map(fact));
    const entropy = row.isExact ? entropyOf(row.weights) : app.data.sums("entropy", layer, head)[Math.floor(token / queries)];
    const isMean = !row.isExact && queries > 1;
    said.push([app.say(isMean ? "page.entropy.pooled" : "page.entropy", { queries }), Number.isNaN(entropy) ? "NaN" : app.say("page.entropy.value", { nats: entropy.toFixed(3), keys: Math.exp(entropy).toFixed(1) })]);
    if (row.isExact) said.push([app.say("page.sum"), isNan ? "NaN" : sumOf(row.weights).toFixed(4)]);
    const hidden = row.codes.reduce((sum, code) => sum + (code === MASKED || code === EMPTY ? 1 : 0), 0);
    if (hidden && row.step === 1 && (row.isExact || queries === 1)) said.push([app.say("page.hidden"), String(hidden)]);
    const how = row.isExact ? "page.numbers.exact" : queries > 1 || keys > 1 ? "page.numbers.pooled" : "page.numbers.coded";
    said.push([app.say("page.numbers"), app.say(how, { rows: queries, columns: keys })]);
    return clear(facts).append(...said.map(fact));
  }

  function fact([what, value]) {
    return el("div", { class: "fact" }, el("small", {}, what), el("span", {}, value));
  }

  function bars() {
    const width = app.width(root);
    const ratio = sized(canvas, width, TALL);
    draw(new CanvasPen(canvas, ratio), width);
    canvas.setAttribute("aria-label", app.say("page.bars.label", { count: row.weights.length }));
  }

  function draw(pen, width) {
    const { layer } = app.state;
    drawChart(app, pen, width, row.weights, app.data.side(layer, "keys").tokens, row.step, -1);
  }

  return {
    update() {
      const { layer, head, token } = app.state;
      if (!app.data.isRead(layer)) return app.waiting(root);
      row = app.data.row(layer, head, token);
      const called = app.data.name(layer, "queries", token);
      name.textContent = called === String(token) ? called : `${token}  ${called}`;
      for (const [id, said] of [["token-back", "page.token.back"], ["token-next", "page.token.next"]]) {
        const button = root.querySelector(`#${id}`);
        button.setAttribute("aria-label", app.say(said));
        button.title = app.say(said);
      }
      const isOne = isSame(layer);
      from.hidden = isOne;
      fromHeading.hidden = isOne;
      fromHeading.textContent = app.say("page.queries");
      heading.textContent = app.say("page.row.looks", { name: app.data.name(layer, "queries", token), layer, head });
      text.setAttribute("aria-label", heading.textContent);
      from.setAttribute("aria-label", fromHeading.textContent);
      if (!isOne) tokens(from, "queries", false);
      tokens(text, "keys", true);
      told();
      showPicture?.(row, heading.textContent);
      strongest();
      bars();
      legend(app, clear(key));
      return undefined;
    },
    move(across, down) {
      app.step(across || down);
    },
    size: () => ({ width: 720, height: TALL + 44 }),
    figure(pen) {
      pen.text(shortened(app.figureName(heading.textContent), 90), 12, 18, { size: 14, colour: app.colours.page("ink"), bold: true });
      draw(shifted(pen, 12, 36), 696);
    },
  };

  function isSame(layer) {
    const { queries, keys } = app.data.layers[layer];
    return queries === keys;
  }
}

export function saidOf(kind) {
  return { nan: "page.nan", masked: "page.masked", empty: "page.empty" }[kind];
}

export function sumOf(weights) {
  return weights.reduce((sum, weight) => sum + weight, 0);
}
