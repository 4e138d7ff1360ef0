// Map: one head as a heat map that is zoomed, moved and read cell by cell.
import { EMPTY, NAN, ZERO, formatWeight, kindOf, placeOf } from "./codes.js";
import { CanvasPen, HEADING, shifted } from "./pen.js";
import { axis, matrix } from "./axis.js";
import { clamp, clear, el, place, sized } from "./elements.js";
import { fitted, labels, shortened } from "./layout.js";
import { legend } from "./legend.js";

export function mapView(app, root) {
  const canvas = el("canvas", { id: "map", tabIndex: 0, role: "img" });
  const tip = el("div", { class: "tip", hidden: true });
  const tools = el("div", { class: "tools", role: "group" });
  const key = el("div", { class: "legend" });
  root.append(el("div", { class: "stage" }, canvas, tip), el("div", { class: "below" }, tools, key));
  const view = { zoom: 1, x: 0, y: 0 };
  let shown = null;
  let cell = null;

  for (const [id, sign, factor] of [["zoom-in", "+", 1.5], ["zoom-out", "−", 1 / 1.5], ["zoom-fit", "⤢", 0]]) {
    tools.append(el("button", { type: "button", id, on: { click: () => zoom(factor) } }, sign));
  }

  function zoom(factor, at = null) {
    if (!shown) return;
    const { plot } = shown.frame;
    const before = view.zoom;
    const finest = Math.max(1, 64 / Math.min(shown.frame.cell.width, shown.frame.cell.height));
    view.zoom = factor === 0 ? 1 : clamp(before * factor, 1, finest);
    const about = at ?? { x: plot.x + plot.width / 2, y: plot.y + plot.height / 2 };
    const change = view.zoom / before;
    view.x = (view.x + about.x - plot.x) * change - (about.x - plot.x);
    view.y = (view.y + about.y - plot.y) * change - (about.y - plot.y);
    paint();
  }

  function bounded({ plot, cell: size }) {
    const wide = shown.matrix.columns * size.width * view.zoom;
    const tall = shown.matrix.rows * size.height * view.zoom;
    view.x = clamp(view.x, 0, Math.max(0, wide - plot.width));
    view.y = clamp(view.y, 0, Math.max(0, tall - plot.height));
  }

  function paint() {
    if (!shown) return;
    const { width, height } = shown.frame;
    bounded(shown.frame);
    // one finger scrolls the page until the map has been zoomed
    canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
    const ratio = sized(canvas, width, height);
    draw(new CanvasPen(canvas, ratio), shown.frame, view);
    mark();
  }

  function draw(pen, frame, { zoom: scale, x, y }) {
    const { plot } = frame;
    const size = { width: frame.cell.width * scale, height: frame.cell.height * scale };
    const { rows, columns, codes } = shown.matrix;
    pen.inside(plot.x, plot.y, plot.width, plot.height, () => {
      pen.image(shown.picture, plot.x - x, plot.y - y, columns * size.width, rows * size.height);
      signs(pen, plot, size, x, y, codes, rows, columns);
    });
    const soft = app.colours.page("soft");
    const row = shown.queries.of(app.state.token);
    for (const [n, at] of labels(rows, size.height, y, plot.height, 15)) {
      const isChosen = n === row;
      const colour = isChosen ? app.colours.page("accent") : soft;
      pen.text(shortened(shown.queries.names[n], frame.letters.rows), plot.x - 8, plot.y + at, { size: 12, colour, align: "end", bold: isChosen });
    }
    for (const [n, at] of labels(columns, size.width, x, plot.width, 15)) {
      pen.text(shortened(shown.keys.names[n], frame.letters.columns), plot.x + at, plot.y - 8, { size: 12, colour: soft, turn: -Math.PI / 3 });
    }
    const isNarrow = frame.width < 640;
    pen.text(`${app.say(isNarrow ? "page.key" : "page.keys")} →`, plot.x + plot.width, frame.height - 9, { size: 11, colour: soft, align: "end" });
    pen.text(`↓ ${app.say(isNarrow ? "page.query" : "page.queries")}`, 2, frame.height - 9, { size: 11, colour: soft });
  }

  // what needs more than a colour: rows that see nothing, NaN, the chosen row, and numbers where there is room
  function signs(pen, plot, size, x, y, codes, rows, columns) {
    const first = { i: Math.floor(y / size.height), j: Math.floor(x / size.width) };
    const last = {
      i: Math.min(rows, Math.ceil((y + plot.height) / size.height)),
      j: Math.min(columns, Math.ceil((x + plot.width) / size.width)),
    };
    // neighbours are hatched at once: there may be thousands
    for (let i = first.i; i < last.i; i += 1) {
      const from = i;
      while (i < last.i && codes[i * columns] === EMPTY) i += 1;
      if (i > from) hatched(pen, plot.x - x, plot.y - y + from * size.height, columns * size.width, (i - from) * size.height);
    }
    if (size.width < 30 || size.height < 16 || (last.i - first.i) * (last.j - first.j) > 1600) return;
    for (let i = first.i; i < last.i; i += 1) {
      for (let j = first.j; j < last.j; j += 1) {
        const code = codes[i * columns + j];
        const weight = shown.matrix.weightAt(i, j);
        if (code !== NAN && !(weight >= 0.005)) continue;
        const at = placeOf(weight, app.state.scale);
        const colour = code === NAN ? app.colours.inkOutside("nan") : app.colours.ink(at);
        const text = code === NAN ? "NaN" : weight >= 0.995 ? weight.toFixed(1) : weight.toFixed(2).replace(/^0/, "");
        pen.text(text, plot.x - x + (j + 0.5) * size.width, plot.y - y + (i + 0.5) * size.height, { size: 11, colour, align: "center" });
      }
    }
  }

  function hatched(pen, x, y, width, height) {
    const colour = app.colours.page("ink");
    const step = Math.max(clamp(height, 5, 14), (width + height) / 2000);
    pen.inside(x, y, width, height, () => {
      for (let at = step - height; at < width; at += step) {
        pen.curve(x + at, y + height, x + at, y + height, x + at + height, y, x + at + height, y, colour, 0.8, 0.45);
      }
    });
  }

  // the cell that is pointed at
  function mark() {
    tip.hidden = cell === null;
    if (cell === null || !shown) return;
    const { plot } = shown.frame;
    const size = { width: shown.frame.cell.width * view.zoom, height: shown.frame.cell.height * view.zoom };
    const x = plot.x - view.x + cell.j * size.width;
    const y = plot.y - view.y + cell.i * size.height;
    const pen = canvas.getContext("2d");
    pen.strokeStyle = app.colours.page("accent");
    pen.lineWidth = 2;
    pen.strokeRect(x, y, Math.max(size.width, 3), Math.max(size.height, 3));
    const said = told(cell);
    clear(tip).append(el("b", {}, said.names), el("span", {}, said.weight));
    tip.style.transform = `translate(${clamp(x + size.width + 8, 4, Math.max(4, shown.frame.width - 240))}px, ${clamp(y + size.height + 8, 4, shown.frame.height - 60)}px)`;
    canvas.setAttribute("aria-label", `${said.names}: ${said.weight}`);
    app.tell(`${said.names}: ${said.weight}`);
  }

  function told({ i, j }) {
    const names = `${shown.queries.names[i]} → ${shown.keys.names[j]}`;
    const code = shown.matrix.codes[i * shown.matrix.columns + j];
    const kind = kindOf(code);
    if (kind !== "weight") return { names, weight: app.say({ nan: "page.nan", masked: "page.masked", empty: "page.empty" }[kind]) };
    const isExact = shown.matrix.isExactAt(i);
    if (code === ZERO && !isExact) return { names, weight: app.say("page.below") };
    const weight = formatWeight(shown.matrix.weightAt(i, j));
    const block = app.data.layers[app.state.layer].block;
    const how = isExact ? "page.exact" : block[1] > 1 || block[0] > 1 ? "page.largest" : "page.coded";
    return { names, weight: app.say(how, { weight, rows: block[0], columns: block[1] }) };
  }

  function hit(event) {
    if (!shown) return null;
    const { plot, cell: size } = shown.frame;
    const at = place(event, canvas);
    const j = Math.floor((at.x - plot.x + view.x) / (size.width * view.zoom));
    const i = Math.floor((at.y - plot.y + view.y) / (size.height * view.zoom));
    const isInside = at.x >= plot.x && at.y >= plot.y && at.x < plot.x + plot.width && at.y < plot.y + plot.height;
    return isInside && i >= 0 && j >= 0 && i < shown.matrix.rows && j < shown.matrix.columns ? { i, j } : null;
  }

  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, place(event, canvas));
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event, canvas);
    const before = fingers.get(event.pointerId);
    if (before === undefined) {
      cell = hit(event);
      paint();
      return;
    }
    const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    fingers.set(event.pointerId, now);
    moved += Math.hypot(now.x - before.x, now.y - before.y);
    if (other) {
      zoom(distance(now, other) / Math.max(1, distance(before, other)), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
      return;
    }
    view.x -= now.x - before.x;
    view.y -= now.y - before.y;
    paint();
  });
  canvas.addEventListener("pointerup", (event) => {
    fingers.delete(event.pointerId);
    if (moved > 4) return;
    cell = hit(event);
    if (cell) app.set({ token: shown.queries.first[cell.i] });
  });
  canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", (event) => {
    // a finger leaves when it is lifted, and what it touched is still to be read
    if (event.pointerType === "touch") return;
    cell = null;
    paint();
  });
  canvas.addEventListener("dblclick", (event) => zoom(2, place(event, canvas)));
  canvas.addEventListener(
    "wheel",
    (event) => {
      // a wheel alone scrolls the page; fingers on a touchpad come with ctrl
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(Math.exp(-clamp(event.deltaY, -120, 120) / 300), place(event, canvas));
    },
    { passive: false },
  );

  return {
    update() {
      const { layer, head, joined } = app.state;
      if (!app.data.isRead(layer)) return app.waiting(root);
      const queries = axis(app.data, layer, "queries", joined);
      const keys = axis(app.data, layer, "keys", joined);
      const both = queries.isJoined && keys.isJoined;
      const rows = both || !queries.isJoined ? queries : axis(app.data, layer, "queries", false);
      const columns = both || !keys.isJoined ? keys : axis(app.data, layer, "keys", false);
      const made = matrix(app.data, layer, head, rows, columns);
      shown = {
        queries: rows,
        keys: columns,
        matrix: made,
        picture: app.colours.picture(made.codes, made.rows, made.columns, app.state.scale),
        frame: fitted(app.width(root), made.rows, made.columns, rows.names, columns.names, clamp(window.innerHeight - 250, 400, 860)),
      };
      if (cell && (cell.i >= made.rows || cell.j >= made.columns)) cell = null;
      canvas.setAttribute("aria-label", app.say("page.map.label", { layer, head, rows: made.rows, columns: made.columns }));
      for (const [id, said] of [["zoom-in", "page.zoom.in"], ["zoom-out", "page.zoom.out"], ["zoom-fit", "page.zoom.fit"]]) {
        const button = root.querySelector(`#${id}`);
        button.setAttribute("aria-label", app.say(said));
        button.title = app.say(said);
      }
      paint();
      legend(app, clear(key));
      return undefined;
    },
    zoom,
    move(across, down) {
      if (!shown) return;
      const from = cell ?? { i: shown.queries.of(app.state.token), j: -1 };
      cell = { i: clamp(from.i + down, 0, shown.matrix.rows - 1), j: clamp(from.j + across, 0, shown.matrix.columns - 1) };
      const size = { width: shown.frame.cell.width * view.zoom, height: shown.frame.cell.height * view.zoom };
      view.x = clamp(view.x, (cell.j + 1) * size.width - shown.frame.plot.width, cell.j * size.width);
      view.y = clamp(view.y, (cell.i + 1) * size.height - shown.frame.plot.height, cell.i * size.height);
      if (down) app.set({ token: shown.queries.first[cell.i] });
      else paint();
    },
    size: () => shown && { width: shown.frame.width, height: shown.frame.height + HEADING },
    figure(pen) {
      const { layer, head } = app.state;
      pen.text(app.figureName(app.say("page.statistics.head", { layer, head })), 12, 16, { size: 14, colour: app.colours.page("ink"), bold: true });
      draw(shifted(pen, 0, HEADING), shown.frame, { zoom: 1, x: 0, y: 0 });
    },
  };
}

function distance(a, b) {
  return Math.hypot(a.x - b.x, a.y - b.y);
}
