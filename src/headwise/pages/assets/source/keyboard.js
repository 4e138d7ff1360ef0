// Keyboard: everything that the mouse can do.
const TYPING = new Set(["INPUT", "SELECT", "TEXTAREA"]);
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function listen(app, views) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { target } = event;
    const isTyping = TYPING.has(target.tagName) && target.type !== "checkbox";
    if (isTyping) return;
    if (run(app, views, event)) event.preventDefault();
  });
}

function run(app, views, event) {
  const { key, target } = event;
  const number = Number(key) - 1;
  if (key !== "0" && number in views) return app.set({ view: views[number] }) ?? true;
  if (key in ARROWS) {
    if (target.role === "tab" || target.getAttribute?.("role") === "tab") return tab(app, views, ARROWS[key]);
    app.view.move?.(...ARROWS[key]);
    return true;
  }
  if (key === " " && target.tagName !== "BUTTON" && target.type !== "checkbox" && app.view.toggle) return app.view.toggle() ?? true;
  const keys = {
    h: () => app.nextHead(1),
    H: () => app.nextHead(-1),
    l: () => app.nextLayer(1),
    L: () => app.nextLayer(-1),
    s: () => app.nextSample(1),
    S: () => app.nextSample(-1),
    j: () => app.set({ joined: !app.state.joined }),
    "+": () => app.view.zoom?.(1.5),
    "=": () => app.view.zoom?.(1.5),
    "-": () => app.view.zoom?.(1 / 1.5),
    0: () => app.view.zoom?.(0),
  };
  if (!(key in keys)) return false;
  keys[key]();
  return true;
}

function tab(app, views, [across, down]) {
  const at = views.indexOf(app.state.view);
  const next = (at + (across || down) + views.length) % views.length;
  app.set({ view: views[next] });
  document.getElementById(`tab-${views[next]}`).focus();
  return true;
}
