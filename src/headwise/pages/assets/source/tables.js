// Tables: a number for each head, layers by heads, as buttons that choose the head.
import { clamp, clear, el } from "./elements.js";
import { bytesOfColour, inkOn } from "./colours.js";

// red is above 0 and blue below, as far as 0.85 of the way from the paper
const SIGNED = { above: "#b2182b", below: "#2166ac" };
const STRONGEST = 0.85;
const CAPTION = { size: 11, height: 58 };
// letters beyond are as wide as high, as those of Chinese are
const LAST_NARROW = "\u2e80";
const HEAD_CELL = { least: 46, letter: 7, height: 26 };

// one table; values: null is NaN, and what is no finite number belongs to no head. least: pixels of a cell
export function numberTable(app, { caption, about, values, hasSign = false, written, least = 0 }) {
  const paint = painter(app, values, hasSign);
  const widest = Math.max(...values.map((row) => row.length));
  const head = el("tr", {}, el("td", {}), ...Array.from({ length: widest }, (_, n) => el("th", { scope: "col" }, `H${n}`)));
  const rows = values.map((row, n) => {
    const cells = row.map((value, h) => {
      const button = el("button", { type: "button", on: { click: () => app.set({ layer: n, head: h }) } }, written(value));
      button.setAttribute("aria-label", `${caption} L${n} H${h}: ${button.textContent}`);
      const { fill, ink } = paint(value);
      button.style.background = fill;
      button.style.color = ink;
      button.classList.toggle("chosen", n === app.state.layer && h === app.state.head);
      return el("td", {}, button);
    });
    return el("tr", {}, el("th", { scope: "row" }, `L${n}`), ...cells);
  });
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows));
  if (least) table.style.minWidth = `${30 + widest * least}px`;
  return el("figure", {}, el("figcaption", {}, el("b", {}, caption), el("small", {}, about)), el("div", { class: "wide" }, table));
}

// a value -> its colour, and the ink that is read on it
function painter(app, values, hasSign) {
  const finite = values.flat().filter((value) => Number.isFinite(value));
  const low = Math.min(0, ...finite);
  const high = Math.max(1e-9, ...finite);
  return (value) => {
    if (!Number.isFinite(value)) {
      const kind = value === null ? "nan" : "empty";
      return { fill: app.colours.outside(kind), ink: app.colours.inkOutside(kind) };
    }
    if (hasSign) return signed(app, value / Math.max(high, -low));
    const at = 0.06 + (0.9 * (value - low)) / (high - low || 1);
    return { fill: app.colours.at(at), ink: app.colours.ink(at) };
  };
}

// -1 to 1 as a mixture of the paper with one of two colours
function signed(app, share) {
  const paper = bytesOfColour(app.colours.page("card"));
  const strong = bytesOfColour(share < 0 ? SIGNED.below : SIGNED.above);
  const part = STRONGEST * Math.min(1, Math.abs(share));
  const mixed = paper.map((byte, n) => Math.round(byte + part * (strong[n] - byte)));
  return { fill: `rgb(${mixed.join(",")})`, ink: inkOn(mixed) };
}

// numbers of a table in its unit, to its places, never "-0.00"
function writer({ power, places }) {
  return (value) => (value === null ? "–" : (value / 10 ** power).toFixed(places).replace(/^-(?=[0.]*$)/, ""));
}

// the views Compare and Effects
export function tableView(kind) {
  return (app, root) => {
    const about = el("p", { class: "about" });
    const tables = el("div", { class: "tables" });
    root.append(about, tables);
    const given = app.data.header.tables.filter((table) => table.view === kind);
    const heading = () => given[0].heading[app.words.lang];
    const caption = ({ key, unit }) => app.say(key) + (unit ? app.say("page.unit", { unit }) : "");
    // as wide as the longest number of any of them
    const letters = Math.max(...given.flatMap((table) => table.values.flat().map(writer(table)).map((text) => text.length)));
    const widest = Math.max(...given.flatMap(({ values }) => values.map((row) => row.length)));
    const cellWidth = Math.max(HEAD_CELL.least, HEAD_CELL.letter * letters + 8);
    return {
      update() {
        about.textContent = `${heading()}${app.say("page.tables.choose")}`;
        tables.style.gridTemplateColumns = `repeat(auto-fit, minmax(min(100%, ${34 + widest * (cellWidth + 2)}px), 1fr))`;
        clear(tables).append(
          ...given.map((table) => numberTable(app, { caption: caption(table), about: app.say(table.about), values: table.values, hasSign: table.has_sign, written: writer(table), least: cellWidth })),
        );
      },
      move(across, down) {
        const layer = clamp(app.state.layer + down, 0, app.data.layers.length - 1);
        app.set({ layer, head: clamp(app.state.head + across, 0, app.data.layers[layer].heads - 1) });
      },
      size() {
        const headingWidth = [...heading()].reduce((sum, letter) => sum + CAPTION.size * (letter > LAST_NARROW ? 1 : 0.6), 0);
        return { width: Math.max(52 + widest * cellWidth, headingWidth + 16) + 16, height: given.length * (given[0].values.length * HEAD_CELL.height + 76) + CAPTION.height };
      },
      figure(pen) {
        const [ink, soft] = [app.colours.page("ink"), app.colours.page("soft")];
        pen.text(app.figureName(app.data.header.title), 16, 18, { size: 14, colour: ink, bold: true });
        pen.text(heading(), 16, 40, { size: CAPTION.size, colour: soft });
        given.forEach((table, n) => {
          const { values, has_sign: hasSign } = table;
          const [paint, written] = [painter(app, values, hasSign), writer(table)];
          const top = CAPTION.height + n * (values.length * HEAD_CELL.height + 76);
          pen.text(caption(table), 16, top + 10, { size: 13, colour: ink, bold: true });
          values[0].forEach((_, h) => pen.text(`H${h}`, 52 + (h + 0.5) * cellWidth, top + 34, { size: 11, colour: soft, align: "center" }));
          values.forEach((row, layer) => {
            const y = top + 46 + layer * HEAD_CELL.height;
            pen.text(`L${layer}`, 44, y + HEAD_CELL.height / 2, { size: 11, colour: soft, align: "end" });
            row.forEach((value, h) => {
              const { fill, ink: colour } = paint(value);
              pen.rect(52 + h * cellWidth, y, cellWidth - 2, HEAD_CELL.height - 2, fill);
              pen.text(written(value), 52 + (h + 0.5) * cellWidth - 1, y + HEAD_CELL.height / 2 - 1, { size: 11, colour, align: "center" });
            });
          });
        });
      },
    };
  };
}
