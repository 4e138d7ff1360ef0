// Elements of the page, made so that text is only ever text.
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "on") for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
    else if (name === "class") made.className = value;
    else if (name === "dataset") Object.assign(made.dataset, value);
    else if (name in made && !name.startsWith("aria")) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function clear(root) {
  root.replaceChildren();
  return root;
}

// a canvas of so many CSS pixels, sharp on every screen, and the pixels it has for each
export function sized(canvas, width, height) {
  const most = 16384;
  const ratio = Math.min(window.devicePixelRatio || 1, most / Math.max(width, 1), most / Math.max(height, 1));
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  return ratio;
}

export function place(event, canvas) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

// where the focus is below a root: the place of each element in its parent, or null
export function focusIn(root) {
  const path = [];
  let at = document.activeElement;
  while (at && at !== root && root?.contains(at)) {
    path.unshift(Array.from(at.parentElement.children).indexOf(at));
    at = at.parentElement;
  }
  return at === root && path.length ? path : null;
}

// give it back to the element that stands there now, after what had it has been drawn again
export function refocus(root, path) {
  if (!path || root.contains(document.activeElement)) return;
  let at = root;
  for (const n of path) at = at?.children[n];
  at?.focus({ preventScroll: true });
}

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}
