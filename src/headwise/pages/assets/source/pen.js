// Two pens that draw the same figure: one on a canvas, one into SVG, for a paper.
export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif';

// how much room a figure has for what it is called
export const HEADING = 32;

export class CanvasPen {
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

export class SvgPen {
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
export function shifted(pen, right, down) {
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
export function escaped(text) {
  // eslint-disable-next-line no-control-regex
  return String(text).replace(/[&<>"']/g, (sign) => SIGNS[sign]).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "�");
}
