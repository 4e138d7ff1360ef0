// The data of the page: its header, and the numbers of each layer, decoded when they are first looked at.
import { CLOSED, EMPTY, MASKED, NOTHING, nearest, weightOf } from "./codes.js";

const MOST_HELD = 6;

export function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n += 1) bytes[n] = raw.charCodeAt(n);
  return bytes;
}

export function floatsOf(text) {
  const bytes = bytesOf(text);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, n) => view.getFloat32(4 * n, true));
}

// text: id of a block -> what is in it, or null while it has not been read
export class Data {
  constructor(header, text) {
    this.header = header;
    this.layers = header.layers;
    // which of the samples that are carried is shown
    this.sample = 0;
    this.text = text;
    this.held = new Map();
  }

  // whether the numbers of a layer are there yet: the page is shown before all of them have been read
  isRead(layer) {
    const last = this.layers[layer].exact.length ? "exact" : "received";
    return this.text(`codes-${layer}`) !== null && this.text(`${last}-${layer}`) !== null;
  }

  // the number of the sample that is shown
  get sampled() {
    return this.header.carried[this.sample] ?? 0;
  }

  // what the header says of a layer in the sample that is shown
  facts(layer) {
    return this.layers[layer].samples[this.sample];
  }

  side(layer, which) {
    const side = this.header.sides[this.layers[layer][which]];
    return side.others && this.sampled > 0 ? side.others[this.sampled - 1] : side;
  }

  name(layer, which, index) {
    const token = this.side(layer, which).tokens[index] ?? String(index);
    // the space before a word is no part of its name
    return token.trim() || token;
  }

  codes(layer, head) {
    const [rows, columns] = this.layers[layer].size;
    return this.part(this.block(`codes-${layer}`, bytesOf), layer, head, rows * columns);
  }

  thumb(layer, head) {
    const [rows, columns] = this.layers[layer].thumb;
    const name = this.text(`thumbs-${layer}`) === null ? `codes-${layer}` : `thumbs-${layer}`;
    return { rows, columns, codes: this.part(this.block(name, bytesOf), layer, head, rows * columns) };
  }

  // what a block holds of one head in the sample that is shown, so many entries
  part(block, layer, head, size) {
    const place = this.sample * this.layers[layer].heads + head;
    return block.subarray(place * size, (place + 1) * size);
  }

  // one number of each block of queries or keys
  sums(which, layer, head) {
    const count = this.layers[layer].size[which === "entropy" ? 0 : 1];
    return this.part(this.block(`${which}-${layer}`, floatsOf), layer, head, count);
  }

  // the exact weights of a query, or null where they are not carried
  exact(layer, head, query) {
    return this.exactRow(layer, head, query)?.weights ?? null;
  }

  // the same with their codes, which tell what is masked
  exactRow(layer, head, query) {
    const { exact, heads, lengths } = this.layers[layer];
    const place = exact.indexOf(query);
    if (place < 0) return null;
    const start = ((this.sample * exact.length + place) * heads + head) * lengths[1];
    const { weights, codes } = this.block(`exact-${layer}`, unmarked);
    return { weights: weights.subarray(start, start + lengths[1]), codes: codes.subarray(start, start + lengths[1]) };
  }

  code(layer, head, query, key) {
    const { block, size } = this.layers[layer];
    return this.codes(layer, head)[Math.floor(query / block[0]) * size[1] + Math.floor(key / block[1])];
  }

  // the best that the page knows of one weight
  weight(layer, head, query, key) {
    const exact = this.exactRow(layer, head, query);
    const code = this.code(layer, head, query, key);
    if (exact === null) return { weight: weightOf(code), code, isExact: false };
    return { weight: exact.weights[key], code: exact.codes[key], isExact: true };
  }

  // the weights of a query over the blocks of keys, or over keys where they are exact
  row(layer, head, query) {
    const exact = this.exactRow(layer, head, query);
    if (exact !== null) return { ...exact, isExact: true, step: 1 };
    const { block, size } = this.layers[layer];
    const start = Math.floor(query / block[0]) * size[1];
    const codes = this.codes(layer, head).subarray(start, start + size[1]);
    return { weights: Float64Array.from(codes, weightOf), codes, isExact: false, step: block[1] };
  }

  // whether each byte of a layer stands for one weight
  isSingle(layer) {
    const { block } = this.layers[layer];
    return block[0] === 1 && block[1] === 1;
  }

  block(name, decode) {
    const found = this.held.get(name);
    if (found) return found;
    const text = this.text(name);
    if (text === null) throw new Error(`the page has no block ${name}`);
    const made = decode(text);
    this.held.set(name, made);
    this.forget(name);
    return made;
  }

  // let go of the layers that were looked at longest ago
  forget(name) {
    if (!name.startsWith("codes-")) return;
    const large = [...this.held.keys()].filter((key) => key.startsWith("codes-"));
    for (const key of large.slice(0, Math.max(0, large.length - MOST_HELD))) this.held.delete(key);
  }
}

// exact weights and their codes, apart from the marks that stand among them
function unmarked(text) {
  const marked = floatsOf(text);
  const codes = Uint8Array.from(marked, (value) => (value === CLOSED ? MASKED : value === NOTHING ? EMPTY : nearest(value)));
  return { weights: marked.map((value) => (value < 0 ? 0 : value)), codes };
}
