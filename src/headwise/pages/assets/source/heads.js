// Heads: lines from each token to those it looks at, for any set of heads.
import { CanvasPen, HEADING, shifted } from "./pen.js";
import { axis, matrix } from "./axis.js";
import { clamp, clear, el, place, sized } from "./elements.js";
import { EMPTY, NAN, formatWeight } from "./codes.js";
import { bytesOfColour, inkOn } from "./colours.js";
import { shortened } from "./layout.js";

const ROW = 26;
const TOP = 34;
const MOST_TALL = 780;
// weaker lines than this are not drawn while all tokens are shown
const FAINTEST = 0.02;
// and those of the chosen token than this
const FAINTEST_OWN = 0.004;

export function headView(app, root) {
  const chips = el("div", { class: "chips", role: "group" });
  const canvas = el("canvas", { id: "lines", tabIndex: 0, role: "img" });
  const spacer = el("div", { class: "spacer" });
  const scroller = el("div", { class: "scroller" }, el("div", { class: "sticky" }, canvas), spacer);
  const told = el("p", { class: "told" });
  const about = el("p", { class: "fine" });
  root.append(chips, scroller, told, about);
  let shown = null;
  let hovered = null;

  function paint() {
    if (!shown) return;
    const { width, height } = shown;
    const ratio = sized(canvas, width, height);
    draw(new CanvasPen(canvas, ratio), width, height, scroller.scrollTop);
  }

  function draw(pen, width, height, top) {
    const { queries, keys, matrices } = shown;
    const colours = { ink: app.colours.page("ink"), soft: app.colours.page("soft"), accent: app.colours.page("accent") };
    const left = columnWidth(width);
    const letters = Math.floor(left / 8.2);
    const chosen = hovered ?? queries.of(app.state.token);
    pen.inside(0, TOP - 8, width, height - TOP + 8, () => {
      for (const { head, matrix: made } of matrices) {
        lines(pen, made, app.colours.head(head), { left, right: width - left, top, height, chosen });
      }
    });
    names(pen, queries.names, left - 8, "end", letters, top, height, (n) => (n === chosen ? colours.accent : colours.soft), (n) => n === chosen);
    const strong = strength(chosen, keys.names.length, matrices);
    names(pen, keys.names, width - left + 8, "start", letters, top, height, (n) => (strong[n] >= 0.1 ? colours.ink : colours.soft), (n) => strong[n] >= 0.1);
    pen.text(app.say("page.query"), left - 8, 12, { size: 11, colour: colours.soft, align: "end" });
    pen.text(app.say("page.key"), width - left + 8, 12, { size: 11, colour: colours.soft });
  }

  function lines(pen, made, colour, { left, right, top, height, chosen }) {
    const first = Math.max(0, Math.floor((top - height) / ROW));
    const last = Math.min(made.rows, Math.ceil((top + 2 * height) / ROW));
    const bend = (right - left) * 0.42;
    const one = (i, j, weight, alpha) => {
      const y1 = TOP + (i + 0.5) * ROW - top;
      const y2 = TOP + (j + 0.5) * ROW - top;
      pen.curve(left, y1, left + bend, y1, right - bend, y2, right, y2, colour, 0.6 + 5.4 * weight, alpha);
    };
    const firstKey = Math.max(0, Math.floor((top - height) / ROW));
    const lastKey = Math.min(made.columns, Math.ceil((top + 2 * height) / ROW));
    for (let i = first; i < last; i += 1) {
      const sign = signOf(made, i);
      if (sign) pen.text(sign === "nan" ? "NaN" : "∅", left + 4, TOP + (i + 0.5) * ROW - top, { size: 11, colour: app.colours.page(sign === "nan" ? "accent" : "soft") });
      if (i === chosen) continue;
      for (let j = firstKey; j < lastKey; j += 1) {
        const weight = made.weightAt(i, j);
        if (weight >= FAINTEST) one(i, j, weight, (shown.isFew ? 0.3 : 0.14) * Math.sqrt(weight));
      }
    }
    if (chosen >= made.rows) return;
    for (let j = 0; j < made.columns; j += 1) {
      const weight = made.weightAt(chosen, j);
      if (weight >= FAINTEST_OWN) one(chosen, j, weight, 0.25 + 0.7 * Math.sqrt(weight));
    }
  }

  function names(pen, all, x, align, letters, top, height, colour, isBold) {
    const first = Math.max(0, Math.floor(top / ROW));
    const last = Math.min(all.length, Math.ceil((top + height) / ROW));
    pen.inside(align === "end" ? 0 : x, TOP - 8, align === "end" ? x : x + 400, height - TOP + 8, () => {
      for (let n = first; n < last; n += 1) {
        pen.text(shortened(all[n], letters), x, TOP + (n + 0.5) * ROW - top, { size: 14, align, colour: colour(n), bold: isBold(n) });
      }
    });
  }

  function columnWidth(width) {
    return clamp(24 + 8.2 * shown.longest, 70, Math.min(190, width * 0.3));
  }

  function heads() {
    clear(chips).setAttribute("aria-label", app.say("page.heads.which"));
    const count = app.data.layers[app.state.layer].heads;
    for (let head = 0; head < count; head += 1) {
      const isOn = app.state.heads.has(head);
      const chip = el("button", { type: "button", class: "chip", "aria-pressed": String(isOn), "aria-label": app.say("page.heads.one", { head }) }, String(head));
      chip.style.setProperty("--colour", app.colours.head(head));
      chip.style.setProperty("--on", inkOn(bytesOfColour(app.colours.head(head))));
      chip.addEventListener("click", () => {
        const chosen = new Set(app.state.heads);
        if (isOn) chosen.delete(head);
        else chosen.add(head);
        app.set({ heads: chosen, head: isOn ? app.state.head : head });
      });
      chips.append(chip);
    }
    const all = el("button", { type: "button", id: "heads-all", class: "quiet", on: { click: () => app.set({ heads: new Set(Array.from({ length: count }, (_, n) => n)) }) } });
    const one = el("button", { type: "button", id: "heads-one", class: "quiet", on: { click: () => app.set({ heads: new Set([app.state.head]) }) } });
    all.textContent = app.say("page.heads.all");
    one.textContent = app.say("page.heads.only");
    chips.append(all, one);
  }

  function tell() {
    const chosen = hovered ?? shown.queries.of(app.state.token);
    const strong = strength(chosen, shown.keys.names.length, shown.matrices);
    const best = Array.from(strong.keys()).sort((a, b) => strong[b] - strong[a]).slice(0, 3).filter((n) => strong[n] > 0);
    const listed = best.map((n) => `${shown.keys.names[n]} ${formatWeight(strong[n])}`).join(" · ");
    const from = shown.queries.names[chosen];
    const signs = shown.matrices.map(({ matrix: made }) => signOf(made, chosen));
    const isEmpty = signs.length > 0 && signs.every((sign) => sign === "empty");
    const nan = shown.matrices.filter((_, n) => signs[n] === "nan").map(({ head }) => head);
    const said = nan.length ? [app.say("page.looks.nan", { from, heads: nan.join(", ") })] : [];
    if (listed) said.unshift(app.say("page.looks", { from, to: listed }));
    else if (!nan.length) said.push(app.say(isEmpty ? "page.looks.empty" : "page.looks.none", { from }));
    told.textContent = said.join(" ");
    about.textContent = app.say("page.lines.about", { all: FAINTEST, own: FAINTEST_OWN });
    canvas.setAttribute("aria-label", `${app.say("page.lines.label", { layer: app.state.layer })} ${told.textContent}`);
  }

  function rowAt(event) {
    const at = place(event, canvas);
    const n = Math.floor((at.y - TOP + scroller.scrollTop) / ROW);
    return shown && at.x < shown.width / 2 && n >= 0 && n < shown.queries.names.length ? n : null;
  }

  canvas.addEventListener("pointermove", (event) => {
    const row = rowAt(event);
    if (row === hovered) return;
    hovered = row;
    paint();
    tell();
  });
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
    paint();
  });
  canvas.addEventListener("click", (event) => {
    const row = rowAt(event);
    if (row !== null) app.set({ token: shown.queries.first[row] });
  });
  scroller.addEventListener("scroll", paint, { passive: true });

  return {
    update() {
      const { layer, joined } = app.state;
      if (!app.data.isRead(layer)) return app.waiting(root);
      const joinedBoth = joined && app.canJoin();
      const queries = axis(app.data, layer, "queries", joinedBoth);
      const keys = axis(app.data, layer, "keys", joinedBoth);
      const matrices = [...app.state.heads].sort((a, b) => a - b).map((head) => ({ head, matrix: matrix(app.data, layer, head, queries, keys) }));
      const tall = TOP + ROW * Math.max(queries.names.length, keys.names.length) + 8;
      const height = Math.min(tall, MOST_TALL);
      shown = { queries, keys, matrices, longest: Math.max(...lengthsOf(queries.names), ...lengthsOf(keys.names)), width: Math.min(app.width(root), 900), height, tall, isFew: matrices.length * queries.names.length <= 64 };
      scroller.style.height = `${height}px`;
      spacer.style.height = `${tall - height}px`;
      heads();
      reveal();
      paint();
      tell();
      return undefined;
    },
    move(across, down) {
      if (down && shown) app.step(down, shown.queries);
    },
    size: () => shown && { width: shown.width, height: Math.min(shown.tall, 6000) + HEADING },
    figure(pen) {
      const [drawn, { layer }] = [shown.matrices.map(({ head }) => head), app.state];
      const said = drawn.length === 1 ? app.say("page.statistics.head", { layer, head: drawn[0] }) : app.say("page.figure.heads", { layer, heads: drawn.join(", ") });
      pen.text(app.figureName(said), 12, 16, { size: 14, colour: app.colours.page("ink"), bold: true });
      draw(shifted(pen, 0, HEADING), shown.width, Math.min(shown.tall, 6000), 0);
    },
  };

  function reveal() {
    const y = shown.queries.of(app.state.token) * ROW;
    if (y < scroller.scrollTop || y > scroller.scrollTop + shown.height - 2 * ROW - TOP) scroller.scrollTop = Math.max(0, y - shown.height / 2);
  }
}

// what a row is where it has no weights: "nan", "empty", or null
function signOf({ codes, columns, rows }, row) {
  if (row >= rows) return null;
  if (codes[row * columns] === EMPTY) return "empty";
  return codes.subarray(row * columns, (row + 1) * columns).includes(NAN) ? "nan" : null;
}

// how many letters names have, no more than matter
function lengthsOf(names) {
  return names.slice(0, 3000).map((name) => Math.min(24, name.length));
}

// the largest weight of a query on each key, over some heads
export function strength(row, count, matrices) {
  const strong = new Float64Array(count);
  for (const { matrix: made } of matrices) {
    if (row >= made.rows) continue;
    for (let j = 0; j < count; j += 1) strong[j] = Math.max(strong[j], made.weightAt(row, j) || 0);
  }
  return strong;
}
