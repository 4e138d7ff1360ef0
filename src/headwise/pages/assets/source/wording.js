// What the page says, in the language chosen.
export class Wording {
  constructor(tables, lang) {
    this.tables = tables;
    this.lang = Object.hasOwn(tables, lang) ? lang : "en";
  }

  say(key, values = {}) {
    const sentence = this.tables[this.lang][key];
    if (sentence === undefined) throw new Error(`the page has no sentence ${key}`);
    return sentence.replace(/\{(\w+)\}/g, (mark, name) => (name in values ? String(values[name]) : mark));
  }

  get others() {
    return Object.keys(this.tables).filter((lang) => lang !== this.lang);
  }

  // the sentences of everything that names its key in the page itself
  apply(root) {
    document.documentElement.lang = this.lang === "zh" ? "zh-Hans" : this.lang;
    for (const each of root.querySelectorAll("[data-say]")) each.textContent = this.say(each.dataset.say);
    for (const each of root.querySelectorAll("[data-aria]")) each.setAttribute("aria-label", this.say(each.dataset.aria));
  }
}
