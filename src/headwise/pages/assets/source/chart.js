// Chart: one bar for each token, or for each run of them where there are more than pixels.
import { NOTHING } from "./codes.js";
import { shortened } from "./layout.js";

export const TALL = 150;

export function drawChart(app, pen, width, values, names, step, marked) {
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
export function downsampled(values, most) {
  const clean = Array.from(values);
  if (clean.length <= most) return clean;
  const count = Math.floor(most);
  return Array.from({ length: count }, (_, n) => {
    let best = NOTHING;
    for (let at = Math.floor((n * clean.length) / count); at < Math.floor(((n + 1) * clean.length) / count); at += 1) best = Math.max(best, clean[at]);
    return best;
  });
}

