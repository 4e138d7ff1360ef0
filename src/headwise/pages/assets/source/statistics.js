// Statistics: every head by its entropy and distance, and the head chosen by what each token gives and gets.
import { clear, el, place, sized } from "./elements.js";
import { CanvasPen, shifted } from "./pen.js";
import { TALL, drawChart } from "./chart.js";
import { NOTHING } from "./codes.js";
import { numberTable } from "./tables.js";

export function statisticsView(app, root) {
  const tables = el("div", { class: "tables" });
  const charts = el("div", { class: "charts" });
  root.append(tables, charts);

  function table(caption, about, valueOf) {
    const values = app.data.layers.map((layer, n) => Array.from({ length: layer.heads }, (_, head) => valueOf(n, head)));
    return numberTable(app, { caption, about, values, written });
  }

  function chart(id, caption, values, names, step, pick) {
    const canvas = el("canvas", { id, role: "img" });
    const told = el("small", { class: "reading" });
    const width = app.width(root);
    const best = Array.from(values.keys()).filter((n) => values[n] >= 0).sort((a, b) => values[b] - values[a]).slice(0, 5);
    const listed = best.map((n) => `${names[n * step] ?? n * step} ${values[n].toFixed(2)}`).join(" · ");
    canvas.setAttribute("aria-label", `${caption}: ${listed}`);
    told.textContent = listed;
    const figure = el("figure", {}, el("figcaption", {}, el("b", {}, caption), told), canvas);
    const ratio = sized(canvas, width, TALL);
    const paint = (marked) => drawChart(app, new CanvasPen(canvas, ratio), width, values, names, step, marked);
    paint(pick ? Math.floor(app.state.token / step) : -1);
    canvas.addEventListener("pointermove", (event) => {
      const n = Math.floor((place(event, canvas).x / width) * values.length);
      if (n < 0 || n >= values.length) return;
      const value = values[n] === NOTHING ? app.say("page.empty") : Number.isNaN(values[n]) ? "NaN" : values[n].toFixed(3);
      told.textContent = `${n * step} ${names[n * step] === String(n * step) ? "" : (names[n * step] ?? "")} ${value}`;
      paint(n);
    });
    canvas.addEventListener("pointerleave", () => {
      told.textContent = listed;
      paint(pick ? Math.floor(app.state.token / step) : -1);
    });
    if (pick) canvas.addEventListener("click", (event) => app.set({ token: Math.min(app.queries() - 1, Math.floor((place(event, canvas).x / width) * values.length) * step) }));
    return figure;
  }

  return {
    update() {
      const { layer, head } = app.state;
      if (!app.data.isRead(layer)) return app.waiting(root);
      clear(tables).append(
        table(app.say("page.entropy.mean"), app.say("page.entropy.about"), (n, h) => app.data.facts(n).entropy[h]),
        table(app.say("page.distance"), app.say("page.distance.about"), (n, h) => app.data.facts(n).distance[h]),
      );
      const { block } = app.data.layers[layer];
      const queries = app.data.side(layer, "queries").tokens;
      const keys = app.data.side(layer, "keys").tokens;
      clear(charts).append(
        el("h2", {}, app.say("page.statistics.head", { layer, head })),
        chart("entropies", app.say("page.entropy.each"), app.data.sums("entropy", layer, head), queries, block[0], true),
        chart("received", app.say("page.received"), app.data.sums("received", layer, head), keys, block[1], false),
      );
      return undefined;
    },
    move(across, down) {
      if (across) app.step(across);
      else app.set({ head: Math.max(0, Math.min(app.data.layers[app.state.layer].heads - 1, app.state.head + down)) });
    },
    size: () => ({ width: 720, height: 2 * TALL + 84 }),
    figure(pen) {
      const { layer, head } = app.state;
      const { block } = app.data.layers[layer];
      pen.text(`${app.figureName(app.say("page.statistics.head", { layer, head }))} · ${app.say("page.entropy.each")}`, 12, 18, { size: 13, colour: app.colours.page("ink"), bold: true });
      drawChart(app, shifted(pen, 12, 36), 696, app.data.sums("entropy", layer, head), app.data.side(layer, "queries").tokens, block[0], -1);
      pen.text(app.say("page.received"), 12, TALL + 56, { size: 13, colour: app.colours.page("ink"), bold: true });
      drawChart(app, shifted(pen, 12, TALL + 74), 696, app.data.sums("received", layer, head), app.data.side(layer, "keys").tokens, block[1], -1);
    },
  };
}

// one number of a table: NaN, none, or never "-0.0"
function written(value) {
  if (value === null) return "NaN";
  if (!Number.isFinite(value)) return "–";
  return value.toFixed(Math.abs(value) < 10 ? 1 : 0).replace(/^-(?=[0.]*$)/, "");
}
