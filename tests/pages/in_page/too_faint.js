// every text that is seen and is fainter against what lies behind it than WCAG 2.2 AA asks of what is not disabled
(() => {
  const parsed = (text) => {
    const numbers = text.match(/[\d.]+/g).map(Number);
    const unit = text.startsWith("color(") ? 255 : 1;
    return [...numbers.slice(0, 3).map((number) => number * unit), numbers[3] ?? 1];
  };
  const part = (byte) => (byte / 255 <= 0.04045 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  const over = (top, under) => [0, 1, 2].map((n) => top[n] * top[3] + under[n] * (1 - top[3]));
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const own = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !own.checkVisibility()) continue;
    if (own.closest("script, noscript, option, .unseen, :disabled")) continue;
    const behind = [];
    for (let at = own; at; at = at.parentElement) behind.unshift(parsed(getComputedStyle(at).backgroundColor));
    const ground = behind.reduce((under, top) => over(top, under), [255, 255, 255]);
    const style = getComputedStyle(own);
    const [a, b] = [light(over(parsed(style.color), ground)), light(ground)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (contrast >= (isLarge ? 3 : 4.5)) continue;
    found.push(`${own.tagName}.${own.className} ${own.textContent.slice(0, 20)}: ${contrast.toFixed(2)}`);
  }
  return found;
})()
