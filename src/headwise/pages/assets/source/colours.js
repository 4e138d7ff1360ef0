// Colours: the scales that came with the page, and what has no place on a scale.
import { EMPTY, MASKED, NAN, WEIGHTS, placeOf } from "./codes.js";
import { bytesOf } from "./data.js";

// told apart by every kind of eye as far as so many can be; each is named by its number as well
export const HEADS = [
  "#0077bb", "#ee7733", "#009988", "#cc3311", "#8e5bb5", "#b8860b",
  "#33a5d6", "#d1568f", "#5d8a2a", "#7a5230", "#4457c9", "#6f7580",
];

// the same as in colours.py
const OUTSIDE = {
  light: { masked: [200, 193, 172], empty: [240, 214, 196], nan: [205, 60, 20] },
  dark: { masked: [49, 47, 57], empty: [92, 60, 42], nan: [255, 106, 61] },
};

export class Colours {
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
export function inkOn(colour) {
  const [red, green, blue] = Array.from(colour, (byte) => (byte <= 10 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.1791 ? "#000000" : "#ffffff";
}

// #rrggbb as three bytes
export function bytesOfColour(text) {
  return [1, 3, 5].map((n) => Number.parseInt(text.slice(n, n + 2), 16));
}

function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
