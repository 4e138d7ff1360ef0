// Picture: the image whose patches are the tokens, bright where the row attends; a patch is chosen by a click.
import { clear, el, place, sized } from "./elements.js";
import { CanvasPen } from "./pen.js";

const LARGEST = 360;
const VEIL = 0.82;

export function pictureOf(app, root) {
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
