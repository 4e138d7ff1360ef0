// Overview: every head of every layer as a small map, and the strongest links found.
import { clear, el } from "./elements.js";
import { formatWeight } from "./codes.js";
import { legend } from "./legend.js";

export function overview(app, root) {
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
    const { links, has_all_links: hasAllLinks } = data.header;
    if (!links.length && hasAllLinks) return;
    cards.append(el("h2", {}, app.say(hasAllLinks ? "page.links" : "page.links.distant")));
    if (!links.length) {
      cards.append(el("p", {}, app.say("page.links.near")));
      return;
    }
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
