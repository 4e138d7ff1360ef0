// Layout: how large a map is drawn, and which of its labels have room.
import { clamp } from "./elements.js";

const LARGEST_CELL = 46;
const SMALLEST_SIDE = 44;

// where a map of rows × columns is drawn in so many pixels
export function fitted(width, rows, columns, rowNames, columnNames, tallest = 860) {
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
export function labels(count, size, offset, room, apart) {
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

export function shortened(text, letters) {
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
