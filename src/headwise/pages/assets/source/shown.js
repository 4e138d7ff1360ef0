// Shown: what is on the page, said in plain words: the model, the layer, the rules, and how exact the numbers are.
import { clear, el } from "./elements.js";

export function factsOf(data, layer, say) {
  const { header } = data;
  const now = data.layers[layer];
  const said = [say("page.fact.before_dropout")];
  if (now.name) said.push(say("page.fact.module", { layer, name: now.name }));
  said.push(say("page.fact.size", { layers: data.layers.length, heads: now.heads, queries: now.lengths[0], keys: now.lengths[1] }));
  if (header.samples > 1) said.push(say("page.fact.sample", { sample: data.sampled, samples: header.samples }));
  if (header.carried.length < header.samples) said.push(say("page.fact.samples", { carried: runs(header.carried), count: header.samples - header.carried.length }));
  const facts = data.facts(layer);
  if (facts.causal) said.push(say("page.fact.causal"));
  if (facts.hidden > 0) said.push(say("page.fact.hidden", { share: (100 * facts.hidden).toFixed(1) }));
  else said.push(say("page.fact.open"));
  if (facts.empty) said.push(say("page.fact.empty", { count: facts.empty }));
  if (facts.nan) said.push(say("page.fact.nan", { count: facts.nan }));
  if (data.isSingle(layer)) said.push(say("page.fact.coded"));
  else said.push(say("page.fact.pooled", { rows: now.block[0], columns: now.block[1] }));
  if (now.exact.length === now.lengths[0]) said.push(say("page.fact.exact_all"));
  else if (now.exact.length) said.push(say("page.fact.exact", { count: now.exact.length }));
  return said;
}

// 0, 1, 2, 5 as "0–2, 5"
export function runs(numbers) {
  const found = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else found.push([n, n]);
  }
  return found.map(([first, last]) => (first === last ? String(first) : `${first}–${last}`)).join(", ");
}

// of a page without maps
function stepsFacts(data, layer, say) {
  return [say("page.fact.steps")];
}

export function shownFacts(app, list) {
  const { layers } = app.data;
  const said = [...(layers.length ? factsOf : stepsFacts)(app.data, app.state.layer, (key, values) => app.say(key, values)), ...app.data.header.notes];
  clear(list).append(...said.map((sentence) => el("li", {}, sentence)));
}
