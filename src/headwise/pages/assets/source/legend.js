// Legend: the scale of colours, the choice between two, and the signs of what is no weight.
import { el } from "./elements.js";
import { placeOf } from "./codes.js";

const TICKS = { log: [0.001, 0.01, 0.1, 1], linear: [0, 0.25, 0.5, 0.75, 1] };

export function legend(app, root) {
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
