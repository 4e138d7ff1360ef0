// Shown: what is on the page, said in plain words: the model, the layer, the rules, and how exact the numbers are.
import { clear, el } from "./elements.js";

export function factsOf(data, layer, say) {
  const { header } = data;
  const now = data.layers[layer];
  const said = [say("page.fact.before_dropout")];
  if (now.name) said.push(say("page.fact.module", { layer, name: now.name }));
  said.push(say("page.fact.size", { layers: data.layers.length, heads: now.heads, queries: now.lengths[0], keys: now.lengths[1] }));
  if (header.samples > 1) said.push(say("page.fact.sample", { sample: header.sample, samples: header.samples }));
  if (now.causal) said.push(say("page.fact.causal"));
  if (now.hidden > 0) said.push(say("page.fact.hidden", { share: (100 * now.hidden).toFixed(1) }));
  else said.push(say("page.fact.open"));
  if (now.empty) said.push(say("page.fact.empty", { count: now.empty }));
  if (now.nan) said.push(say("page.fact.nan", { count: now.nan }));
  if (data.isSingle(layer)) said.push(say("page.fact.coded"));
  else said.push(say("page.fact.pooled", { rows: now.block[0], columns: now.block[1] }));
  if (now.exact.length === now.lengths[0]) said.push(say("page.fact.exact_all"));
  else if (now.exact.length) said.push(say("page.fact.exact", { count: now.exact.length }));
  return said;
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
