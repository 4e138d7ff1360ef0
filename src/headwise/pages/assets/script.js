// Made from source/*.js by python -m tests.page_code --write: change those.
"use strict";
(() => {
// codes.js
// What the bytes of a map mean: the same table as codes.py.
const EMPTY = 0;
const MASKED = 1;
const ZERO = 2;
const FIRST = 3;
const LAST = 253;
const NAN = 255;
// in the place of an exact weight, or of an entropy: the pair may not attend; the row may attend to nothing
const CLOSED = -1;
const NOTHING = -2;
const OCTAVES = 28;
const STEPS = (LAST - FIRST) / OCTAVES;

// code -> weight: 0 where there is none, NaN where the model gave NaN
const WEIGHTS = Float64Array.from({ length: 256 }, (_, code) => {
  if (code === NAN) return NaN;
  return code < FIRST ? 0 : 2 ** ((code - FIRST) / STEPS - OCTAVES);
});

function weightOf(code) {
  return WEIGHTS[code];
}

// the code nearest to a weight
function nearest(weight) {
  if (Number.isNaN(weight)) return NAN;
  if (weight < WEIGHTS[FIRST]) return ZERO;
  return Math.min(LAST, Math.round(FIRST + (Math.log2(weight) + OCTAVES) * STEPS));
}

// the kind of entry a code is: a weight, or why there is none
function kindOf(code) {
  if (code === NAN) return "nan";
  if (code === EMPTY) return "empty";
  if (code === MASKED) return "masked";
  return "weight";
}

// 0..1 along a scale of colours: "linear" in the weight, "log" over the last 3 powers of ten
function placeOf(weight, scale) {
  if (!(weight > 0)) return 0;
  if (scale === "linear") return Math.min(weight, 1);
  return Math.min(1, Math.max(0, 1 + Math.log10(weight) / 3));
}

function formatWeight(weight) {
  if (Number.isNaN(weight)) return "NaN";
  if (weight === 0) return "0";
  if (weight < 0.001) return weight.toExponential(1).replace("e-", "e−");
  return weight.toFixed(weight < 0.01 ? 4 : 3);
}

// -sum p log p in nats over weights
function entropyOf(weights) {
  let sum = 0;
  for (const p of weights) {
    if (Number.isNaN(p)) return NaN;
    if (p > 0) sum -= p * Math.log(p);
  }
  return sum;
}

// data.js
// The data of the page: its header, and the numbers of each layer, decoded when they are first looked at.

const MOST_HELD = 6;

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n += 1) bytes[n] = raw.charCodeAt(n);
  return bytes;
}

function floatsOf(text) {
  const bytes = bytesOf(text);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, n) => view.getFloat32(4 * n, true));
}

// text: id of a block -> what is in it, or null while it has not been read
class Data {
  constructor(header, text) {
    this.header = header;
    this.layers = header.layers;
    // which of the samples that are carried is shown
    this.sample = 0;
    this.text = text;
    this.held = new Map();
  }

  // whether the numbers of a layer are there yet: the page is shown before all of them have been read
  isRead(layer) {
    const last = this.layers[layer].exact.length ? "exact" : "received";
    return this.text(`codes-${layer}`) !== null && this.text(`${last}-${layer}`) !== null;
  }

  // the number of the sample that is shown
  get sampled() {
    return this.header.carried[this.sample] ?? 0;
  }

  // what the header says of a layer in the sample that is shown
  facts(layer) {
    return this.layers[layer].samples[this.sample];
  }

  side(layer, which) {
    const side = this.header.sides[this.layers[layer][which]];
    return side.others && this.sampled > 0 ? side.others[this.sampled - 1] : side;
  }

  name(layer, which, index) {
    const token = this.side(layer, which).tokens[index] ?? String(index);
    // the space before a word is no part of its name
    return token.trim() || token;
  }

  codes(layer, head) {
    const [rows, columns] = this.layers[layer].size;
    return this.part(this.block(`codes-${layer}`, bytesOf), layer, head, rows * columns);
  }

  thumb(layer, head) {
    const [rows, columns] = this.layers[layer].thumb;
    const name = this.text(`thumbs-${layer}`) === null ? `codes-${layer}` : `thumbs-${layer}`;
    return { rows, columns, codes: this.part(this.block(name, bytesOf), layer, head, rows * columns) };
  }

  // what a block holds of one head in the sample that is shown, so many entries
  part(block, layer, head, size) {
    const place = this.sample * this.layers[layer].heads + head;
    return block.subarray(place * size, (place + 1) * size);
  }

  // one number of each block of queries or keys
  sums(which, layer, head) {
    const count = this.layers[layer].size[which === "entropy" ? 0 : 1];
    return this.part(this.block(`${which}-${layer}`, floatsOf), layer, head, count);
  }

  // the exact weights of a query, or null where they are not carried
  exact(layer, head, query) {
    return this.exactRow(layer, head, query)?.weights ?? null;
  }

  // the same with their codes, which tell what is masked
  exactRow(layer, head, query) {
    const { exact, heads, lengths } = this.layers[layer];
    const place = exact.indexOf(query);
    if (place < 0) return null;
    const start = ((this.sample * exact.length + place) * heads + head) * lengths[1];
    const { weights, codes } = this.block(`exact-${layer}`, unmarked);
    return { weights: weights.subarray(start, start + lengths[1]), codes: codes.subarray(start, start + lengths[1]) };
  }

  code(layer, head, query, key) {
    const { block, size } = this.layers[layer];
    return this.codes(layer, head)[Math.floor(query / block[0]) * size[1] + Math.floor(key / block[1])];
  }

  // the best that the page knows of one weight
  weight(layer, head, query, key) {
    const exact = this.exactRow(layer, head, query);
    const code = this.code(layer, head, query, key);
    if (exact === null) return { weight: weightOf(code), code, isExact: false };
    return { weight: exact.weights[key], code: exact.codes[key], isExact: true };
  }

  // the weights of a query over the blocks of keys, or over keys where they are exact
  row(layer, head, query) {
    const exact = this.exactRow(layer, head, query);
    if (exact !== null) return { ...exact, isExact: true, step: 1 };
    const { block, size } = this.layers[layer];
    const start = Math.floor(query / block[0]) * size[1];
    const codes = this.codes(layer, head).subarray(start, start + size[1]);
    return { weights: Float64Array.from(codes, weightOf), codes, isExact: false, step: block[1] };
  }

  // whether each byte of a layer stands for one weight
  isSingle(layer) {
    const { block } = this.layers[layer];
    return block[0] === 1 && block[1] === 1;
  }

  block(name, decode) {
    const found = this.held.get(name);
    if (found) return found;
    const text = this.text(name);
    if (text === null) throw new Error(`the page has no block ${name}`);
    const made = decode(text);
    this.held.set(name, made);
    this.forget(name);
    return made;
  }

  // let go of the layers that were looked at longest ago
  forget(name) {
    if (!name.startsWith("codes-")) return;
    const large = [...this.held.keys()].filter((key) => key.startsWith("codes-"));
    for (const key of large.slice(0, Math.max(0, large.length - MOST_HELD))) this.held.delete(key);
  }
}

// exact weights and their codes, apart from the marks that stand among them
function unmarked(text) {
  const marked = floatsOf(text);
  const codes = Uint8Array.from(marked, (value) => (value === CLOSED ? MASKED : value === NOTHING ? EMPTY : nearest(value)));
  return { weights: marked.map((value) => (value < 0 ? 0 : value)), codes };
}

// wording.js
// What the page says, in the language chosen.
class Wording {
  constructor(tables, lang) {
    this.tables = tables;
    this.lang = Object.hasOwn(tables, lang) ? lang : "en";
  }

  say(key, values = {}) {
    const sentence = this.tables[this.lang][key];
    if (sentence === undefined) throw new Error(`the page has no sentence ${key}`);
    return sentence.replace(/\{(\w+)\}/g, (mark, name) => (name in values ? String(values[name]) : mark));
  }

  get others() {
    return Object.keys(this.tables).filter((lang) => lang !== this.lang);
  }

  // the sentences of everything that names its key in the page itself
  apply(root) {
    document.documentElement.lang = this.lang === "zh" ? "zh-Hans" : this.lang;
    for (const each of root.querySelectorAll("[data-say]")) each.textContent = this.say(each.dataset.say);
    for (const each of root.querySelectorAll("[data-aria]")) each.setAttribute("aria-label", this.say(each.dataset.aria));
  }
}

// colours.js
// Colours: the scales that came with the page, and what has no place on a scale.

// told apart by every kind of eye as far as so many can be; each is named by its number as well
const HEADS = [
  "#0077bb", "#ee7733", "#009988", "#cc3311", "#8e5bb5", "#b8860b",
  "#33a5d6", "#d1568f", "#5d8a2a", "#7a5230", "#4457c9", "#6f7580",
];

// the same as in colours.py
const OUTSIDE = {
  light: { masked: [200, 193, 172], empty: [240, 214, 196], nan: [205, 60, 20] },
  dark: { masked: [49, 47, 57], empty: [92, 60, 42], nan: [255, 106, 61] },
};

class Colours {
  constructor(scales) {
    this.scales = { light: bytesOf(scales.light), dark: bytesOf(scales.dark) };
    this.tables = new Map();
  }

  get theme() {
    const asked = document.documentElement.dataset.theme;
    if (asked) return asked;
    return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  // a colour of the page itself
  page(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  head(head) {
    return HEADS[head % HEADS.length];
  }

  at(place) {
    const table = this.scales[this.theme];
    const n = 3 * Math.round(255 * Math.max(0, Math.min(1, place)));
    return `rgb(${table[n]},${table[n + 1]},${table[n + 2]})`;
  }

  // ink that can be read on a colour of the scale
  ink(place) {
    const n = 3 * Math.round(255 * Math.max(0, Math.min(1, place)));
    return inkOn(this.scales[this.theme].subarray(n, n + 3));
  }

  // ink that can be read on what has no place on the scale
  inkOutside(kind) {
    return inkOn(OUTSIDE[this.theme][kind]);
  }

  outside(kind) {
    return `rgb(${OUTSIDE[this.theme][kind].join(",")})`;
  }

  // code -> red, green, blue, opaque
  table(scale) {
    const name = `${this.theme} ${scale}`;
    const found = this.tables.get(name);
    if (found) return found;
    const colours = this.scales[this.theme];
    const table = new Uint32Array(256);
    for (let code = 0; code < 256; code += 1) {
      const n = 3 * Math.round(255 * placeOf(WEIGHTS[code], scale));
      table[code] = packed([colours[n], colours[n + 1], colours[n + 2]]);
    }
    const outside = OUTSIDE[this.theme];
    table[EMPTY] = packed(outside.empty);
    table[MASKED] = packed(outside.masked);
    table[NAN] = packed(outside.nan);
    this.tables.set(name, table);
    return table;
  }

  // codes as a picture, one pixel each
  picture(codes, rows, columns, scale) {
    const canvas = document.createElement("canvas");
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const table = this.table(scale);
    for (let n = 0; n < pixels.length; n += 1) pixels[n] = table[codes[n]];
    context.putImageData(image, 0, 0);
    return canvas;
  }
}

// black or white, whichever is read better: at least 4.58 to 1 on any colour (WCAG 2.2, contrast ratio)
function inkOn(colour) {
  const [red, green, blue] = Array.from(colour, (byte) => (byte <= 10 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.1791 ? "#000000" : "#ffffff";
}

// #rrggbb as three bytes
function bytesOfColour(text) {
  return [1, 3, 5].map((n) => Number.parseInt(text.slice(n, n + 2), 16));
}

function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

// elements.js
// Elements of the page, made so that text is only ever text.
function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "on") for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
    else if (name === "class") made.className = value;
    else if (name === "dataset") Object.assign(made.dataset, value);
    else if (name in made && !name.startsWith("aria")) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function clear(root) {
  root.replaceChildren();
  return root;
}

// a canvas of so many CSS pixels, sharp on every screen, and the pixels it has for each
function sized(canvas, width, height) {
  const most = 16384;
  const ratio = Math.min(window.devicePixelRatio || 1, most / Math.max(width, 1), most / Math.max(height, 1));
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  return ratio;
}

function place(event, canvas) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

// where the focus is below a root: the place of each element in its parent, or null
function focusIn(root) {
  const path = [];
  let at = document.activeElement;
  while (at && at !== root && root?.contains(at)) {
    path.unshift(Array.from(at.parentElement.children).indexOf(at));
    at = at.parentElement;
  }
  return at === root && path.length ? path : null;
}

// give it back to the element that stands there now, after what had it has been drawn again
function refocus(root, path) {
  if (!path || root.contains(document.activeElement)) return;
  let at = root;
  for (const n of path) at = at?.children[n];
  at?.focus({ preventScroll: true });
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

// keyboard.js
// Keyboard: everything that the mouse can do.
const TYPING = new Set(["INPUT", "SELECT", "TEXTAREA"]);
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function listen(app, views) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { target } = event;
    const isTyping = TYPING.has(target.tagName) && target.type !== "checkbox";
    if (isTyping) return;
    if (run(app, views, event)) event.preventDefault();
  });
}

function run(app, views, event) {
  const { key, target } = event;
  const number = Number(key) - 1;
  if (key !== "0" && number in views) return app.set({ view: views[number] }) ?? true;
  if (key in ARROWS) {
    if (target.role === "tab" || target.getAttribute?.("role") === "tab") return tab(app, views, ARROWS[key]);
    app.view.move?.(...ARROWS[key]);
    return true;
  }
  if (key === " " && target.tagName !== "BUTTON" && target.type !== "checkbox" && app.view.toggle) return app.view.toggle() ?? true;
  const keys = {
    h: () => app.nextHead(1),
    H: () => app.nextHead(-1),
    l: () => app.nextLayer(1),
    L: () => app.nextLayer(-1),
    s: () => app.nextSample(1),
    S: () => app.nextSample(-1),
    j: () => app.set({ joined: !app.state.joined }),
    "+": () => app.view.zoom?.(1.5),
    "=": () => app.view.zoom?.(1.5),
    "-": () => app.view.zoom?.(1 / 1.5),
    0: () => app.view.zoom?.(0),
  };
  if (!(key in keys)) return false;
  keys[key]();
  return true;
}

function tab(app, views, [across, down]) {
  const at = views.indexOf(app.state.view);
  const next = (at + (across || down) + views.length) % views.length;
  app.set({ view: views[next] });
  document.getElementById(`tab-${views[next]}`).focus();
  return true;
}

// layout.js
// Layout: how large a map is drawn, and which of its labels have room.

const LARGEST_CELL = 46;
const SMALLEST_SIDE = 44;

// where a map of rows × columns is drawn in so many pixels
function fitted(width, rows, columns, rowNames, columnNames, tallest = 860) {
  const isNarrow = width < 520;
  const letters = { rows: isNarrow ? 9 : 16, columns: isNarrow ? 9 : 14 };
  const left = Math.min(isNarrow ? 84 : 132, 20 + 7.4 * longest(rowNames, letters.rows));
  const top = Math.min(112, 22 + 6.6 * longest(columnNames, letters.columns));
  const right = Math.min(56, 12 + 3 * longest(columnNames.slice(-8), letters.columns));
  // few rows stay large enough for their numbers, however low the window
  const room = { width: Math.max(60, width - left - right), height: Math.max(tallest - top - 30, Math.min(36 * rows, 620)) };
  const equal = Math.min(room.width / columns, room.height / rows, LARGEST_CELL);
  const cell = {
    width: Math.max(equal, Math.min(SMALLEST_SIDE, room.width) / columns),
    height: Math.max(equal, SMALLEST_SIDE / rows),
  };
  const plot = { x: left, y: top, width: cell.width * columns, height: cell.height * rows };
  return { width: Math.max(left + plot.width + right, Math.min(width, 240)), height: top + plot.height + 30, plot, cell, letters };
}

// the entries whose names are written, and where: [entry, middle], at least so many pixels apart
function labels(count, size, offset, room, apart) {
  const step = Math.max(1, Math.ceil(apart / size));
  const found = [];
  const first = Math.floor(offset / size / step) * step;
  for (let n = Math.max(0, first); n < count; n += step) {
    const middle = (n + 0.5) * size - offset;
    if (middle > room) break;
    if (middle >= 0) found.push([n, middle]);
  }
  return found;
}

function shortened(text, letters) {
  const signs = Array.from(text);
  return signs.length > letters ? `${signs.slice(0, letters - 1).join("")}…` : text;
}

// wide signs, as Chinese ones, count twice
function longest(names, letters) {
  let most = 1;
  for (const name of names.length > 4000 ? names.slice(0, 4000) : names) {
    let columns = 0;
    for (const sign of Array.from(name.slice(0, 2 * letters)).slice(0, letters)) columns += sign.codePointAt(0) > 0x2e7f ? 2 : 1;
    most = Math.max(most, columns);
  }
  return clamp(most, 1, letters * 1.4);
}

// pen.js
// Two pens that draw the same figure: one on a canvas, one into SVG, for a paper.
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif';

// how much room a figure has for what it is called
const HEADING = 32;

class CanvasPen {
  constructor(canvas, ratio) {
    this.context = canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, canvas.width, canvas.height);
  }

  rect(x, y, width, height, fill, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  frame(x, y, width, height, colour, thick) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = thick;
    this.context.strokeRect(x, y, width, height);
  }

  line(x1, y1, x2, y2, colour, thick) {
    this.curve(x1, y1, x1, y1, x2, y2, x2, y2, colour, thick, 1);
  }

  curve(x1, y1, ax, ay, bx, by, x2, y2, colour, thick, alpha) {
    const pen = this.context;
    pen.globalAlpha = alpha;
    pen.strokeStyle = colour;
    pen.lineWidth = thick;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.bezierCurveTo(ax, ay, bx, by, x2, y2);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  text(text, x, y, { size = 12, colour, align = "start", turn = 0, bold = false } = {}) {
    const pen = this.context;
    pen.save();
    pen.translate(x, y);
    pen.rotate(turn);
    pen.font = `${bold ? 600 : 400} ${size}px ${FONT}`;
    pen.fillStyle = colour;
    pen.textAlign = align === "start" ? "left" : align === "end" ? "right" : "center";
    pen.textBaseline = "middle";
    pen.fillText(text, 0, 0);
    pen.restore();
  }

  image(picture, x, y, width, height) {
    this.context.imageSmoothingEnabled = width < picture.width;
    this.context.imageSmoothingQuality = "high";
    this.context.drawImage(picture, x, y, width, height);
  }

  inside(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

class SvgPen {
  // name: of the figure, so that several may stand in one document
  constructor(width, height, background, name) {
    this.size = [width, height];
    this.name = name.replace(/[^A-Za-z0-9]+/g, "-");
    this.parts = [];
    this.clips = 0;
    this.rect(0, 0, width, height, background);
  }

  rect(x, y, width, height, fill, alpha = 1) {
    this.put("rect", { x, y, width, height, fill, "fill-opacity": alpha });
  }

  frame(x, y, width, height, colour, thick) {
    this.put("rect", { x, y, width, height, fill: "none", stroke: colour, "stroke-width": thick });
  }

  line(x1, y1, x2, y2, colour, thick) {
    this.put("line", { x1, y1, x2, y2, stroke: colour, "stroke-width": thick });
  }

  curve(x1, y1, ax, ay, bx, by, x2, y2, colour, thick, alpha) {
    const d = `M${round(x1)} ${round(y1)}C${[ax, ay, bx, by, x2, y2].map(round).join(" ")}`;
    this.put("path", { d, fill: "none", stroke: colour, "stroke-width": thick, "stroke-opacity": alpha });
  }

  text(text, x, y, { size = 12, colour, align = "start", turn = 0, bold = false } = {}) {
    const anchor = align === "center" ? "middle" : align;
    const turned = turn ? { transform: `rotate(${round((turn * 180) / Math.PI)} ${round(x)} ${round(y)})` } : {};
    const style = { "font-family": FONT, "font-size": size, "font-weight": bold ? 600 : 400 };
    this.put("text", { x, y, fill: colour, "text-anchor": anchor, "dominant-baseline": "central", ...style, ...turned }, text);
  }

  image(picture, x, y, width, height) {
    const href = picture.toDataURL("image/png");
    this.put("image", { x, y, width, height, href, preserveAspectRatio: "none", style: "image-rendering:pixelated" });
  }

  inside(x, y, width, height, draw) {
    const id = `${this.name}-clip-${(this.clips += 1)}`;
    this.parts.push(`<clipPath id="${id}"><rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    draw();
    this.parts.push("</g>");
  }

  put(tag, attributes, text = "") {
    const written = Object.entries(attributes).map(([name, value]) => `${name}="${escaped(typeof value === "number" ? round(value) : value)}"`);
    this.parts.push(`<${tag} ${written.join(" ")}>${escaped(text)}</${tag}>`);
  }

  get svg() {
    const [width, height] = this.size.map(round);
    const open = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`;
    return `${open}\n${this.parts.join("\n")}\n</svg>\n`;
  }
}

// the same pen, so many pixels further to the right and down
function shifted(pen, right, down) {
  return {
    rect: (x, y, ...rest) => pen.rect(x + right, y + down, ...rest),
    frame: (x, y, ...rest) => pen.frame(x + right, y + down, ...rest),
    image: (picture, x, y, ...rest) => pen.image(picture, x + right, y + down, ...rest),
    inside: (x, y, ...rest) => pen.inside(x + right, y + down, ...rest),
    curve: (x1, y1, ax, ay, bx, by, x2, y2, ...rest) => pen.curve(x1 + right, y1 + down, ax + right, ay + down, bx + right, by + down, x2 + right, y2 + down, ...rest),
    line: (x1, y1, x2, y2, ...rest) => pen.line(x1 + right, y1 + down, x2 + right, y2 + down, ...rest),
    text: (text, x, y, style) => pen.text(text, x + right, y + down, style),
  };
}

function round(value) {
  return Math.round(value * 1000) / 1000;
}

const SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

// without the signs that no XML file may hold
function escaped(text) {
  // eslint-disable-next-line no-control-regex
  return String(text).replace(/[&<>"']/g, (sign) => SIGNS[sign]).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "�");
}

// saving.js
// Saving: the figure that is shown, as PNG and as SVG, and alone on a page of its size that the browser prints as PDF.

const SHARP = 3;

function savedName(header, state, ending) {
  const title = header.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "headwise";
  return `${title}-${state.view}-L${state.layer}H${state.head}.${ending}`;
}

function saveSvg(app) {
  const found = figureOf(app);
  if (!found) return;
  const name = savedName(app.data.header, app.state, "svg");
  const pen = new SvgPen(found.width, found.height, app.colours.page("paper"), name);
  app.view.figure(pen);
  offer(new Blob([pen.svg], { type: "image/svg+xml" }), name);
}

function savePng(app) {
  const found = figureOf(app);
  if (!found) return;
  const canvas = document.createElement("canvas");
  const sharp = Math.min(SHARP, 16000 / found.width, 16000 / found.height);
  canvas.width = Math.ceil(found.width * sharp);
  canvas.height = Math.ceil(found.height * sharp);
  const pen = new CanvasPen(canvas, sharp);
  pen.rect(0, 0, found.width, found.height, app.colours.page("paper"));
  app.view.figure(pen);
  canvas.toBlob((blob) => blob && offer(blob, savedName(app.data.header, app.state, "png")), "image/png");
}

let printed = null;

// the browser's own print makes a PDF of it, whose text is text in every language
async function printFigure(app) {
  forgetPrinted();
  const found = figureOf(app);
  if (!found) return;
  const name = savedName(app.data.header, app.state, "pdf");
  const pen = new SvgPen(found.width, found.height, app.colours.page("paper"), name);
  app.view.figure(pen);
  const image = document.createElement("img");
  image.id = "printed";
  image.alt = name;
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(pen.svg)}`;
  const sheet = new CSSStyleSheet();
  const [width, height] = [Math.ceil(found.width), Math.ceil(found.height)];
  sheet.replaceSync(`@page { size: ${width}px ${height}px; margin: 0; }`);
  const { title } = document;
  printed = { image, title };
  await image.decode();
  document.adoptedStyleSheets = [sheet];
  document.body.append(image);
  document.body.classList.add("printing");
  document.title = name.replace(/\.pdf$/, "");
  window.addEventListener("afterprint", forgetPrinted, { once: true });
  window.print();
}

function forgetPrinted() {
  if (!printed) return;
  const { image, title } = printed;
  printed = null;
  document.adoptedStyleSheets = [];
  document.body.classList.remove("printing");
  document.title = title;
  image.remove();
}

function figureOf(app) {
  const size = app.view.size?.();
  if (!size) app.tell(app.say("page.save.none"));
  return size || null;
}

function offer(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// shown.js
// Shown: what is on the page, said in plain words: the model, the layer, the rules, and how exact the numbers are.

function factsOf(data, layer, say) {
  const { header } = data;
  const now = data.layers[layer];
  const said = [say("page.fact.before_dropout")];
  if (now.name) said.push(say("page.fact.module", { layer, name: now.name }));
  said.push(say("page.fact.size", { layers: data.layers.length, heads: now.heads, queries: now.lengths[0], keys: now.lengths[1] }));
  if (header.samples > 1) said.push(say("page.fact.sample", { sample: data.sampled, samples: header.samples }));
  if (header.carried.length < header.samples) said.push(say("page.fact.samples", { carried: runs(header.carried), count: header.samples - header.carried.length }));
  const facts = data.facts(layer);
  if (facts.causal) said.push(say("page.fact.causal"));
  if (facts.hidden > 0) said.push(say("page.fact.hidden", { share: (100 * facts.hidden).toFixed(1) }));
  else said.push(say("page.fact.open"));
  if (facts.empty) said.push(say("page.fact.empty", { count: facts.empty }));
  if (facts.nan) said.push(say("page.fact.nan", { count: facts.nan }));
  if (data.isSingle(layer)) said.push(say("page.fact.coded"));
  else said.push(say("page.fact.pooled", { rows: now.block[0], columns: now.block[1] }));
  if (now.exact.length === now.lengths[0]) said.push(say("page.fact.exact_all"));
  else if (now.exact.length) said.push(say("page.fact.exact", { count: now.exact.length }));
  return said;
}

// 0, 1, 2, 5 as "0–2, 5"
function runs(numbers) {
  const found = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else found.push([n, n]);
  }
  return found.map(([first, last]) => (first === last ? String(first) : `${first}–${last}`)).join(", ");
}

// of a page without maps
function stepsFacts(data, layer, say) {
  return [say("page.fact.steps")];
}

function shownFacts(app, list) {
  const { layers } = app.data;
  const said = [...(layers.length ? factsOf : stepsFacts)(app.data, app.state.layer, (key, values) => app.say(key, values)), ...app.data.header.notes];
  clear(list).append(...said.map((sentence) => el("li", {}, sentence)));
}

// axis.js
// Axis: what one layer's rows and columns are called, alone, in blocks, or joined into words.

// names: of the entries along a side. first: the token that each entry begins with. of: token -> entry.
function axis(data, layer, which, isJoined) {
  const { lengths, block } = data.layers[layer];
  const side = which === "queries" ? 0 : 1;
  const { tokens, words, called } = data.side(layer, which);
  const length = lengths[side];
  if (isJoined && words && data.isSingle(layer)) return joinedAxis(tokens, words, called, length);
  const step = block[side];
  const first = [];
  for (let n = 0; n < length; n += step) first.push(n);
  const names = first.map((n) => {
    const name = tokens[n]?.trim() || tokens[n] || String(n);
    if (step === 1) return name;
    return name === String(n) ? `${n} …` : `${n} ${name} …`;
  });
  return { names, first, of: (token) => Math.floor(token / step), step, isJoined: false };
}

function joinedAxis(tokens, words, called, length) {
  const names = [];
  const first = [];
  const own = [];
  for (let n = 0; n < length; n += 1) {
    const isNew = n === 0 || words[n] < 0 || words[n] !== words[n - 1];
    if (isNew) {
      first.push(n);
      // the parts of a word may share a character, so that it is not what they are side by side
      names.push(called?.[words[n]] ?? tokens[n]);
    } else if (!called) {
      names[names.length - 1] += tokens[n].replace(/^##/, "");
    }
    own.push(first.length - 1);
  }
  return { names, first, of: (token) => own[token], step: 1, isJoined: true };
}

// the matrix of a head as it is shown: codes along both axes, and the best that is known of each weight
function matrix(data, layer, head, queries, keys) {
  const codes = data.codes(layer, head);
  const { size, lengths } = data.layers[layer];
  const [rows, columns] = size;
  const exact = data.isSingle(layer) ? Array.from({ length: rows }, (_, query) => data.exact(layer, head, query)) : [];
  const weightAt = (i, j) => (exact[i] ? exact[i][j] : WEIGHTS[codes[i * columns + j]]);
  const single = { rows, columns, codes, weightAt, isExactAt: (i) => Boolean(exact[i]) };
  return queries.isJoined && keys.isJoined ? joinedMatrix(single, queries, keys, lengths) : single;
}

// the mean over the queries of a word, of those that see something, of the sums over the keys of a word: each row still shares out 1
function joinedMatrix(single, queries, keys, lengths) {
  const rows = queries.names.length;
  const wide = keys.names.length;
  const weights = new Float64Array(rows * wide);
  const seen = new Uint8Array(rows * wide).fill(EMPTY);
  const count = new Float64Array(rows);
  for (let i = 0; i < lengths[0]; i += 1) {
    const row = queries.of(i);
    // a token that sees nothing has nothing to share out
    if (single.codes[i * single.columns] !== EMPTY) count[row] += 1;
    for (let j = 0; j < lengths[1]; j += 1) {
      const place = row * wide + keys.of(j);
      weights[place] += single.weightAt(i, j);
      seen[place] = Math.max(seen[place], single.codes[i * single.columns + j]);
    }
  }
  const joined = new Uint8Array(rows * wide);
  for (let n = 0; n < weights.length; n += 1) {
    weights[n] /= Math.max(1, count[Math.floor(n / wide)]);
    joined[n] = kindOf(seen[n]) === "weight" ? nearest(weights[n]) : seen[n];
  }
  const coded = new Uint8Array(rows);
  for (let i = 0; i < lengths[0]; i += 1) if (!single.isExactAt(i)) coded[queries.of(i)] = 1;
  const isExactAt = (row) => coded[row] === 0;
  return { rows, columns: wide, codes: joined, weightAt: (i, j) => weights[i * wide + j], isExactAt };
}

// heads.js
// Heads: lines from each token to those it looks at, for any set of heads.

const ROW = 26;
const TOP = 34;
const MOST_TALL = 780;
// weaker lines than this are not drawn while all tokens are shown
const FAINTEST = 0.02;
// and those of the chosen token than this
const FAINTEST_OWN = 0.004;

function headView(app, root) {
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
function strength(row, count, matrices) {
  const strong = new Float64Array(count);
  for (const { matrix: made } of matrices) {
    if (row >= made.rows) continue;
    for (let j = 0; j < count; j += 1) strong[j] = Math.max(strong[j], made.weightAt(row, j) || 0);
  }
  return strong;
}

// legend.js
// Legend: the scale of colours, the choice between two, and the signs of what is no weight.

const TICKS = { log: [0.001, 0.01, 0.1, 1], linear: [0, 0.25, 0.5, 0.75, 1] };

function legend(app, root) {
  const { scale } = app.state;
  const ramp = el("canvas", { class: "ramp", width: 256, height: 1 });
  const pen = ramp.getContext("2d");
  for (let n = 0; n < 256; n += 1) {
    pen.fillStyle = app.colours.at(n / 255);
    pen.fillRect(n, 0, 1, 1);
  }
  const ticks = el("div", { class: "ticks", "aria-hidden": "true" });
  TICKS[scale].forEach((weight, n) => {
    const tick = el("span", {}, n === 0 && scale === "log" ? `≤ ${weight}` : String(weight));
    tick.style.left = `${100 * placeOf(weight, scale)}%`;
    ticks.append(tick);
  });
  const choice = el("div", { class: "choice", role: "group", "aria-label": app.say("page.scale") });
  for (const each of ["log", "linear"]) {
    const isOn = each === scale;
    const button = el("button", { type: "button", id: `scale-${each}`, "aria-pressed": String(isOn), on: { click: () => app.set({ scale: each }) } });
    button.textContent = app.say(each === "log" ? "page.scale.log" : "page.scale.linear");
    choice.append(button);
  }
  const scaleBox = el("div", { class: "scale" }, el("span", { class: "caption" }, app.say("page.weight")), el("div", { class: "rampbox" }, ramp, ticks));
  root.append(scaleBox, choice, ...signs(app));
}

// only those that are on the page
function signs(app) {
  const facts = app.data.layers.map((layer, n) => app.data.facts(n));
  const there = {
    masked: facts.some((each) => each.hidden > 0),
    empty: facts.some((each) => each.empty > 0),
    nan: facts.some((each) => each.nan > 0),
  };
  const said = { masked: "page.masked", empty: "page.empty", nan: "page.nan" };
  return Object.keys(there)
    .filter((kind) => there[kind])
    .map((kind) => {
      const box = el("i", { class: `box ${kind}` });
      box.style.setProperty("--fill", app.colours.outside(kind));
      return el("span", { class: "sign" }, box, app.say(said[kind]));
    });
}

// map.js
// Map: one head as a heat map that is zoomed, moved and read cell by cell.

function mapView(app, root) {
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

// overview.js
// Overview: every head of every layer as a small map, and the strongest links found.

function overview(app, root) {
  const { data } = app;
  const widest = Math.max(...data.layers.map((layer) => layer.heads));
  const buttons = new Map();
  const grid = el("div", { class: "grid", role: "group" });
  grid.style.setProperty("--heads", widest);
  grid.append(el("div", { class: "layer numbers", "aria-hidden": "true" }, el("span", {}), el("div", { class: "heads" }, ...Array.from({ length: widest }, (_, n) => el("span", {}, `H${n}`)))));
  const cards = el("div", { class: "links" });
  const key = el("div", { class: "legend" });

  data.layers.forEach((layer, n) => {
    const row = el("div", { class: "heads" });
    for (let head = 0; head < layer.heads; head += 1) {
      const canvas = el("canvas", { class: "thumb" });
      const button = el("button", { type: "button", class: "head", on: { click: () => app.set({ layer: n, head, view: "map" }) } }, canvas);
      buttons.set(`${n} ${head}`, { button, canvas });
      row.append(button);
    }
    grid.append(el("div", { class: "layer", title: layer.name }, el("span", { class: "number" }, `L${n}`), row));
  });
  root.append(grid, key, cards);

  function paint() {
    for (const [place, { button, canvas }] of buttons) {
      const [layer, head] = place.split(" ").map(Number);
      const { rows, columns, codes } = data.thumb(layer, head);
      const picture = app.colours.picture(codes, rows, columns, app.state.scale);
      canvas.width = columns;
      canvas.height = rows;
      canvas.getContext("2d").drawImage(picture, 0, 0);
      const isChosen = layer === app.state.layer && head === app.state.head;
      button.classList.toggle("chosen", isChosen);
      button.setAttribute("aria-current", String(isChosen));
      const distance = data.facts(layer).distance[head];
      const said = distance === null ? "page.thumb.nan" : distance === "empty" ? "page.thumb.empty" : "page.thumb";
      const told = app.say(said, { layer, head, distance: Number(distance).toFixed(1) });
      button.setAttribute("aria-label", told);
      button.title = `${told}\n${data.layers[layer].name}`;
    }
  }

  function list() {
    clear(cards);
    const { links } = data.header;
    if (!links.length) return;
    cards.append(el("h2", {}, app.say("page.links")));
    const items = links.map((link) => {
      const told = app.say("page.link", { from: link.from, to: link.to, weight: formatWeight(link.weight), layer: link.layer, head: link.head });
      const words = el("span", { class: "pair" }, el("b", {}, link.from), el("i", {}, " → "), el("b", {}, link.to));
      const bar = el("span", { class: "meter" });
      bar.style.setProperty("--share", link.weight);
      const place = el("small", {}, `L${link.layer} H${link.head}`);
      const number = el("span", { class: "weight" }, link.weight.toFixed(2));
      const open = () => app.set({ layer: link.layer, head: link.head, token: link.query, view: "row" });
      return el("li", {}, el("button", { type: "button", class: "link", "aria-label": told, on: { click: open } }, words, number, bar, place));
    });
    cards.append(el("ol", {}, ...items));
  }

  return {
    update() {
      grid.setAttribute("aria-label", app.say("page.view.overview"));
      paint();
      list();
      legend(app, clear(key));
    },
    move(across, down) {
      const layer = Math.max(0, Math.min(data.layers.length - 1, app.state.layer + down));
      const head = Math.max(0, Math.min(data.layers[layer].heads - 1, app.state.head + across));
      app.set({ layer, head });
      buttons.get(`${layer} ${head}`).button.focus();
    },
    size() {
      return { width: 60 + widest * 76, height: 62 + data.layers.length * 76 };
    },
    figure(pen) {
      const ink = app.colours.page("ink");
      pen.text(app.figureName(data.header.title), 16, 20, { size: 14, colour: ink, bold: true });
      for (let head = 0; head < widest; head += 1) pen.text(`H${head}`, 84 + head * 76, 48, { size: 11, colour: app.colours.page("soft"), align: "center" });
      data.layers.forEach((layer, n) => {
        pen.text(`L${n}`, 40, 60 + n * 76 + 34, { size: 12, colour: ink, align: "end" });
        for (let head = 0; head < layer.heads; head += 1) {
          const { rows, columns, codes } = data.thumb(n, head);
          const picture = app.colours.picture(codes, rows, columns, app.state.scale);
          pen.image(picture, 50 + head * 76, 60 + n * 76, 68, 68);
        }
      });
    },
  };
}

// chart.js
// Chart: one bar for each token, or for each run of them where there are more than pixels.

const TALL = 150;

function drawChart(app, pen, width, values, names, step, marked) {
  const shown = downsampled(values, width);
  const most = Math.max(1e-9, ...shown.filter((value) => value >= 0));
  const wide = width / shown.length;
  const isNamed = wide >= 15;
  const floor = TALL - (isNamed ? 62 : 8);
  const soft = app.colours.page("soft");
  pen.line(0, floor + 0.5, width, floor + 0.5, app.colours.page("line"), 1);
  shown.forEach((value, n) => {
    const isMarked = shown.length === values.length ? n === marked : false;
    const tall = (floor - 16) * (Math.max(0, value) / most);
    const gap = wide > 6 ? 1.5 : 0;
    // what is no number stands as a low block of its own colour, never as a bar of 0
    const kind = Number.isNaN(value) ? "nan" : value === NOTHING ? "empty" : null;
    if (kind) pen.rect(n * wide + gap, floor - 8, Math.max(1, wide - 2 * gap), 8, app.colours.outside(kind));
    else pen.rect(n * wide + gap, floor - tall, Math.max(1, wide - 2 * gap), tall, app.colours.page(isMarked ? "accent" : "bar"));
    if (isNamed) pen.text(shortened(names[n * step] ?? String(n * step), 8), (n + 0.5) * wide, floor + 6, { size: 11, colour: isMarked ? app.colours.page("accent") : soft, align: "end", turn: -Math.PI / 2, bold: isMarked });
  });
  pen.text(most.toFixed(2), 2, 7, { size: 11, colour: soft });
}

// the largest of each run, NaN where one is, so that no more bars are drawn than there are pixels
function downsampled(values, most) {
  const clean = Array.from(values);
  if (clean.length <= most) return clean;
  const count = Math.floor(most);
  return Array.from({ length: count }, (_, n) => {
    let best = NOTHING;
    for (let at = Math.floor((n * clean.length) / count); at < Math.floor(((n + 1) * clean.length) / count); at += 1) best = Math.max(best, clean[at]);
    return best;
  });
}

// picture.js
// Picture: the image whose patches are the tokens, bright where the row attends; a patch is chosen by a click.

const LARGEST = 360;
const VEIL = 0.82;

function pictureOf(app, root) {
  const { picture } = app.data.header;
  const canvas = el("canvas", { id: "picture", role: "img" });
  const image = el("img", { alt: "" });
  let drawn = null;
  image.addEventListener("load", () => drawn?.());
  image.src = picture.data;
  clear(root).append(canvas);
  canvas.addEventListener("click", (event) => {
    const { x, y } = place(event, canvas);
    const [column, row] = [Math.floor((x / canvas.clientWidth) * picture.columns), Math.floor((y / canvas.clientHeight) * picture.rows)];
    app.set({ token: picture.first + row * picture.columns + column });
  });

  // row: its weights, each of `step` keys; said: what it is
  return (row, said) => {
    drawn = () => {
      const width = Math.min(LARGEST, app.width(root));
      const height = (width * picture.rows) / picture.columns;
      const pen = new CanvasPen(canvas, sized(canvas, width, height));
      paint(pen, width, height, row);
      canvas.setAttribute("aria-label", said);
    };
    drawn();
  };

  function paint(pen, width, height, row) {
    if (image.complete && image.naturalWidth) pen.image(image, 0, 0, width, height);
    const { rows, columns, first } = picture;
    const weights = Array.from({ length: rows * columns }, (_, n) => row.weights[Math.floor((first + n) / row.step)]);
    const most = Math.max(1e-9, ...weights.filter((weight) => weight >= 0));
    const [wide, high] = [width / columns, height / rows];
    weights.forEach((weight, n) => {
      const share = weight >= 0 ? Math.sqrt(weight / most) : 0;
      pen.rect((n % columns) * wide, Math.floor(n / columns) * high, wide, high, "#000000", VEIL * (1 - share));
    });
    const chosen = app.state.token - first;
    if (chosen >= 0) pen.frame((chosen % columns) * wide + 1, Math.floor(chosen / columns) * high + 1, wide - 2, high - 2, app.colours.page("accent"), 2);
  }
}

// row.js
// Row: what one token looks at: the text tinted by its weights, the strongest keys, entropy, and the row as bars.

const MOST_TOKENS = 400;
const MOST_KEYS = 12;

function rowView(app, root) {
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

function saidOf(kind) {
  return { nan: "page.nan", masked: "page.masked", empty: "page.empty" }[kind];
}

function sumOf(weights) {
  return weights.reduce((sum, weight) => sum + weight, 0);
}

// tables.js
// Tables: a number for each head, layers by heads, as buttons that choose the head.

// red is above 0 and blue below, as far as 0.85 of the way from the paper
const SIGNED = { above: "#b2182b", below: "#2166ac" };
const STRONGEST = 0.85;
const ABOUT = { compare: "page.compare.about", effects: "page.effects.about" };
const HEAD_CELL = { least: 46, letter: 7, height: 26 };

// one table; values: null is NaN, and what is no finite number belongs to no head. least: pixels of a cell
function numberTable(app, { caption, about, values, hasSign = false, written, least = 0 }) {
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

// numbers of a table to so many places that the largest has two digits or three, never "-0.00"
function writer(values) {
  const largest = Math.max(1e-6, ...values.flat().filter((value) => Number.isFinite(value)).map(Math.abs));
  const size = Math.floor(Math.log10(largest));
  const places = clamp((size < 0 ? 1 : 2) - size, 0, 6);
  return (value) => (value === null ? "–" : value.toFixed(places).replace(/^-(?=[0.]*$)/, ""));
}

// the views Compare and Effects
function tableView(kind) {
  return (app, root) => {
    const about = el("p", { class: "about" });
    const tables = el("div", { class: "tables" });
    root.append(about, tables);
    const given = app.data.header.tables.filter((table) => table.view === kind);
    // effects are all in the unit of the metric
    const writerOf = (values) => writer(kind === "effects" ? given.flatMap((table) => table.values) : values);
    // as wide as the longest number of any of them
    const letters = Math.max(...given.flatMap(({ values }) => values.flat().map(writerOf(values)).map((text) => text.length)));
    const widest = Math.max(...given.flatMap(({ values }) => values.map((row) => row.length)));
    const cellWidth = Math.max(HEAD_CELL.least, HEAD_CELL.letter * letters + 8);
    return {
      update() {
        about.textContent = app.say(ABOUT[kind]);
        tables.style.gridTemplateColumns = `repeat(auto-fit, minmax(min(100%, ${34 + widest * (cellWidth + 2)}px), 1fr))`;
        clear(tables).append(
          ...given.map(({ key, about: meaning, values, has_sign: hasSign }) => numberTable(app, { caption: app.say(key), about: app.say(meaning), values, hasSign, written: writerOf(values), least: cellWidth })),
        );
      },
      move(across, down) {
        const layer = clamp(app.state.layer + down, 0, app.data.layers.length - 1);
        app.set({ layer, head: clamp(app.state.head + across, 0, app.data.layers[layer].heads - 1) });
      },
      size() {
        return { width: 52 + widest * cellWidth + 16, height: given.length * (given[0].values.length * HEAD_CELL.height + 76) + 36 };
      },
      figure(pen) {
        const [ink, soft] = [app.colours.page("ink"), app.colours.page("soft")];
        pen.text(app.figureName(app.data.header.title), 16, 18, { size: 14, colour: ink, bold: true });
        given.forEach(({ key, values, has_sign: hasSign }, n) => {
          const [paint, written] = [painter(app, values, hasSign), writerOf(values)];
          const top = 36 + n * (values.length * HEAD_CELL.height + 76);
          pen.text(app.say(key), 16, top + 10, { size: 13, colour: ink, bold: true });
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

// statistics.js
// Statistics: every head by its entropy and distance, and the head chosen by what each token gives and gets.

function statisticsView(app, root) {
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

// stepfigure.js
// Step figure: one step of a computation as a figure: its line of source, what goes in, and what comes out, in numbers.

const CELL = { width: 50, height: 20, gap: 3 };
const LETTER = 7;

// what is drawn, and how large it is; part: { step, count, name, line, tensors: [[name, tensor], ...], made }
function stepFigure(app, part, headOf, number) {
  const drawn = [];
  const text = (said, x, y, style) => drawn.push((pen) => pen.text(said, x, y, style));
  const ink = { colour: app.colours.page("ink") };
  const soft = { colour: app.colours.page("soft") };
  let width = 360;
  text(part.count, 16, 20, { size: 11, ...soft });
  text(part.name, 16, 40, { size: 17, bold: true, ...ink });
  const line = part.line.trim();
  text(line, 16, 64, { size: 12, ...soft });
  width = Math.max(width, 32 + line.length * LETTER);
  let x = 16;
  let y = 86;
  let tallest = 0;
  for (const [name, made] of part.tensors) {
    const size = tensor(name, made, x, y);
    if (x > 16 && x + size.width > 900) {
      drawn.length -= size.count;
      x = 16;
      y += tallest + 18;
      tallest = 0;
      tensor(name, made, x, y);
    }
    tallest = Math.max(tallest, size.height);
    width = Math.max(width, x + size.width + 16);
    x += size.width + 26;
  }
  y += tallest + 30;
  text("→", 16, y + 8, { size: 20, ...soft });
  const size = tensor(...part.made, 46, y);
  return { width: Math.max(width, 46 + size.width + 16), height: y + size.height + 16, draw: (pen) => drawn.forEach((run) => run(pen)) };

  function tensor(name, made, left, top) {
    const before = drawn.length;
    const shape = `[${made.letters.join(", ")}] = [${made.sizes.join(", ")}]`;
    text(name, left, top + 8, { size: 12, bold: true, ...ink });
    text(shape, left, top + 25, { size: 11, ...soft });
    const said = Math.max(name.length * 7.4, shape.length * 6.2);
    if (!made.values) return { width: said, height: 34, count: drawn.length - before };
    const rank = made.sizes.length;
    const columns = rank ? made.sizes[rank - 1] : 1;
    const rows = rank > 1 ? made.sizes[rank - 2] : 1;
    const tables = Math.max(1, Math.round(made.values.length / (rows * columns)));
    const wide = columns * (CELL.width + CELL.gap) + 10;
    for (let n = 0; n < tables; n += 1) {
      for (let i = 0; i < rows; i += 1) {
        for (let j = 0; j < columns; j += 1) cell(made, (n * rows + i) * columns + j, left + n * wide + j * (CELL.width + CELL.gap), top + 38 + i * (CELL.height + CELL.gap));
      }
    }
    return { width: Math.max(said, tables * wide - 10), height: 38 + rows * (CELL.height + CELL.gap), count: drawn.length - before };
  }

  function cell(made, place, left, top) {
    const head = headOf(made.heads, made.sizes, place);
    const fill = app.colours.page("tint");
    drawn.push((pen) => {
      pen.rect(left, top, CELL.width, CELL.height, fill);
      if (head !== null) {
        pen.rect(left, top, CELL.width, CELL.height, app.colours.head(head), 0.16);
        pen.rect(left, top + CELL.height - 2, CELL.width, 2, app.colours.head(head));
      }
      pen.text(number(made.values[place]), left + CELL.width - 6, top + CELL.height / 2, { size: 11.5, align: "end", ...ink });
    });
  }
}

// steps.js
// Steps: a computation shown one operation at a time, with its source, its shapes by name, and its numbers on request.

const PAUSE = 2400;

function stepsView(app, root) {
  const { steps: told } = app.data.header;
  let at = 0;
  let timer = null;
  let hasNumbers = true;

  const source = el("ol", { class: "source" });
  const bar = el("div", { class: "player", role: "group" });
  const back = el("button", { type: "button", id: "step-back", on: { click: () => go(at - 1) } }, "◀");
  const play = el("button", { type: "button", id: "step-play", class: "main", on: { click: toggle } });
  const next = el("button", { type: "button", id: "step-next", on: { click: () => go(at + 1) } }, "▶");
  const slider = el("input", { type: "range", id: "step-slider", min: "0", max: String(told.steps.length - 1), step: "1", on: { input: () => go(Number(slider.value)) } });
  const numbers = el("input", { type: "checkbox", id: "step-numbers", checked: true, on: { change: () => { hasNumbers = numbers.checked; show(); } } });
  const numbersSaid = el("span", {});
  bar.append(back, play, next, slider, el("label", { class: "switch" }, numbers, numbersSaid));
  const what = el("div", { class: "what" });
  const tensors = el("div", { class: "tensors" });
  const about = el("p", { class: "about" });
  root.append(about, bar, el("div", { class: "steps" }, el("div", { class: "code" }, source), el("div", { class: "stepping" }, what, tensors)));

  // a text, or the one of several languages that is spoken
  function spoken(text) {
    if (text === null || text === undefined) return "";
    return typeof text === "string" ? text : (text[app.words.lang] ?? text.en ?? "");
  }

  function go(n) {
    at = Math.max(0, Math.min(told.steps.length - 1, n));
    if (n >= told.steps.length) stop();
    show();
  }

  function toggle() {
    if (timer !== null) return stop();
    if (at === told.steps.length - 1) at = -1;
    timer = setInterval(() => (at < told.steps.length - 1 && root.isConnected ? go(at + 1) : stop()), PAUSE);
    go(at + 1);
    return undefined;
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    say();
  }

  function say() {
    const said = app.say(timer === null ? "page.steps.play" : "page.steps.stop");
    play.textContent = said;
    play.setAttribute("aria-pressed", String(timer !== null));
    for (const [button, key] of [[back, "page.steps.back"], [next, "page.steps.next"], [slider, "page.steps.which"]]) {
      button.setAttribute("aria-label", app.say(key));
      button.title = app.say(key);
    }
    numbersSaid.textContent = app.say("page.steps.numbers");
    bar.setAttribute("aria-label", app.say("page.view.steps"));
  }

  function lines(step) {
    clear(source);
    const { lines: all, first = 1 } = told.source;
    all.forEach((line, n) => {
      const isNow = n + first === step.line;
      const item = el("li", { value: n + first, class: isNow ? "now" : "" });
      if (isNow && step.span) {
        const [start, end] = step.span;
        item.append(line.slice(0, start), el("mark", {}, line.slice(start, end)), line.slice(end));
      } else item.append(line || "\u00a0");
      // what a narrow page breaks off a line stands further in than the line
      item.style.setProperty("--indent", Math.min(line.search(/\S|$/), 16) + 2);
      if (isNow) item.setAttribute("aria-current", "step");
      source.append(item);
    });
  }

  function show() {
    const step = told.steps[at];
    slider.value = String(at);
    back.disabled = at === 0;
    next.disabled = at === told.steps.length - 1;
    about.textContent = spoken(told.title);
    lines(step);
    const count = app.say("page.steps.count", { at: at + 1, count: told.steps.length });
    clear(what).append(el("small", {}, count), el("h2", {}, spoken(step.name)), el("p", {}, spoken(step.says)));
    const given = el("div", { class: "given" }, ...step.inputs.map((name) => tensor(name, false)));
    const made = el("div", { class: "given made" }, el("span", { class: "arrow", "aria-hidden": "true" }, "→"), tensor(step.output, true));
    clear(tensors).append(given, made);
    say();
    app.tell(`${count}. ${spoken(step.name)}. ${shapeOf(step.output)}`);
  }

  function shapeOf(name) {
    const { letters, sizes } = told.tensors[name];
    return `${name} [${letters.join(", ")}] = [${sizes.join(", ")}]`;
  }

  function tensor(name, isNew) {
    const made = told.tensors[name];
    const letters = el("span", { class: "letters" });
    made.letters.forEach((letter, n) => letters.append(el("span", { title: spoken(told.letters[letter]) }, el("b", {}, letter), el("small", {}, String(made.sizes[n])))));
    const caption = el("figcaption", {}, el("code", {}, name), letters);
    const figure = el("figure", { class: isNew ? "tensor new" : "tensor", "aria-label": shapeOf(name) }, caption);
    if (hasNumbers && made.values) figure.append(...tablesOf(made));
    else if (hasNumbers) figure.append(el("small", {}, app.say("page.steps.unknown")));
    return figure;
  }

  // the last two axes as tables, one for each place along the others
  function tablesOf({ sizes, values, heads, axes }) {
    const rank = sizes.length;
    const columns = rank ? sizes[rank - 1] : 1;
    const rows = rank > 1 ? sizes[rank - 2] : 1;
    const count = values.length / (rows * columns);
    const made = [];
    for (let n = 0; n < count; n += 1) {
      const body = el("tbody", {});
      if (axes?.[rank - 1]) body.append(el("tr", {}, axes[rank - 2] ? el("th", {}) : null, ...axes[rank - 1].map((name) => el("th", { scope: "col" }, name))));
      for (let i = 0; i < rows; i += 1) {
        const line = el("tr", {});
        if (axes?.[rank - 2]) line.append(el("th", { scope: "row" }, axes[rank - 2][i]));
        for (let j = 0; j < columns; j += 1) {
          const cell = el("td", {}, number(values[(n * rows + i) * columns + j]));
          const head = headOf(heads, sizes, (n * rows + i) * columns + j);
          if (head !== null) cell.style.setProperty("--colour", app.colours.head(head));
          cell.style.setProperty("--turn", String(n * rows * columns + i * columns + j));
          line.append(cell);
        }
        body.append(line);
      }
      made.push(el("table", { class: heads ? "headed" : "" }, body));
    }
    return made;
  }

  // the step that is shown, as a figure
  function stepDrawn() {
    const step = told.steps[at];
    const { lines: all, first = 1 } = told.source;
    const pair = (name) => [name, hasNumbers ? told.tensors[name] : { ...told.tensors[name], values: null }];
    const count = app.say("page.steps.count", { at: at + 1, count: told.steps.length });
    const part = { count, name: spoken(step.name), line: all[step.line - first] ?? "", tensors: step.inputs.map(pair), made: pair(step.output) };
    return stepFigure(app, part, headOf, number);
  }

  return {
    update: show,
    move: (across, down) => go(at + (across || down)),
    toggle,
    leave: stop,
    size() {
      const { width, height } = stepDrawn();
      return { width, height };
    },
    figure: (pen) => stepDrawn().draw(pen),
  };
}

// which head an entry belongs to: heads = { axis, each }, `each` entries along an axis to a head, or { of }, one by one
function headOf(heads, sizes, place) {
  if (!heads) return null;
  if (heads.of) return heads.of[place] ?? null;
  const inner = sizes.slice(heads.axis + 1).reduce((product, size) => product * size, 1);
  return Math.floor((Math.floor(place / inner) % sizes[heads.axis]) / heads.each);
}

// a number as it stands in a table; what JSON has no number for comes as text
function number(value) {
  if (typeof value !== "number") return String(value).replace("-inf", "−∞");
  if (Number.isInteger(value)) return String(value).replace("-", "−");
  return value.toFixed(2).replace("-", "−");
}

// views.js
// Views: all there are, and those that a page has.

const VIEWS = {
  overview, heads: headView, map: mapView, row: rowView, statistics: statisticsView,
  compare: tableView("compare"), effects: tableView("effects"), steps: stepsView,
};
const SAID = {
  overview: "page.view.overview", heads: "page.view.heads", map: "page.view.map", row: "page.view.row",
  statistics: "page.view.statistics", compare: "page.view.compare", effects: "page.view.effects", steps: "page.view.steps",
};

// Compare and Effects are there where the page has their tables
const OF_TABLES = ["compare", "effects"];

function viewsOf(header, hasMaps) {
  if (!hasMaps) return ["steps"];
  const given = new Set(header.tables.map((table) => table.view));
  return Object.keys(VIEWS).filter((view) => !OF_TABLES.includes(view) || given.has(view));
}

// main.js
// The page: its state, its controls, and the view that is shown.

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
})();
