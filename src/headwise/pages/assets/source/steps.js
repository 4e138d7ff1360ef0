// Steps: a computation shown one operation at a time, with its source, its shapes by name, and its numbers on request.
import { clear, el } from "./elements.js";
import { stepFigure } from "./stepfigure.js";

const PAUSE = 2400;

export function stepsView(app, root) {
  const { steps: told } = app.data.header;
  let at = 0;
  let timer = null;
  let hasNumbers = true;

  const source = el("ol", { class: "source" });
  const code = el("div", { class: "code" }, source);
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
  root.append(about, bar, el("div", { class: "steps" }, code, el("div", { class: "stepping" }, what, tensors)));

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
      // on a narrow page the code is a strip, whose middle is the line that runs
      if (isNow) window.requestAnimationFrame(() => { code.scrollTop = item.offsetTop - (code.clientHeight - item.offsetHeight) / 2; });
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
export function headOf(heads, sizes, place) {
  if (!heads) return null;
  if (heads.of) return heads.of[place] ?? null;
  const inner = sizes.slice(heads.axis + 1).reduce((product, size) => product * size, 1);
  return Math.floor((Math.floor(place / inner) % sizes[heads.axis]) / heads.each);
}

// a number as it stands in a table; what JSON has no number for comes as text
export function number(value) {
  if (typeof value !== "number") return String(value).replace("-inf", "−∞");
  if (Number.isInteger(value)) return String(value).replace("-", "−");
  return value.toFixed(2).replace("-", "−");
}
