// Saving: the figure that is shown, as PNG and as SVG, and alone on a page of its size that the browser prints as PDF.
import { CanvasPen, SvgPen } from "./pen.js";

const SHARP = 3;

export function savedName(header, state, ending) {
  const title = header.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "headwise";
  return `${title}-${state.view}-L${state.layer}H${state.head}.${ending}`;
}

export function saveSvg(app) {
  const found = figureOf(app);
  if (!found) return;
  const name = savedName(app.data.header, app.state, "svg");
  const pen = new SvgPen(found.width, found.height, app.colours.page("paper"), name);
  app.view.figure(pen);
  offer(new Blob([pen.svg], { type: "image/svg+xml" }), name);
}

export function savePng(app) {
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
export async function printFigure(app) {
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
