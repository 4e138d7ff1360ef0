// Step figure: one step of a computation as a figure: its line of source, what goes in, and what comes out, in numbers.

const CELL = { width: 50, height: 20, gap: 3 };
const LETTER = 7;

// what is drawn, and how large it is; part: { step, count, name, line, tensors: [[name, tensor], ...], made }
export function stepFigure(app, part, headOf, number) {
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
