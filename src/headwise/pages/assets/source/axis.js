// Axis: what one layer's rows and columns are called, alone, in blocks, or joined into words.
import { EMPTY, WEIGHTS, kindOf, nearest } from "./codes.js";

// names: of the entries along a side. first: the token that each entry begins with. of: token -> entry.
export function axis(data, layer, which, isJoined) {
  const { lengths, block } = data.layers[layer];
  const side = which === "queries" ? 0 : 1;
  const { tokens, words, called } = data.side(layer, which);
  const length = lengths[side];
  if (isJoined && words && data.isSingle(layer)) return joinedAxis(tokens, words, called, length);
  const step = block[side];
  const first = [];
  for (let n = 0; n < length; n += step) first.push(n);
  const names = first.map((n) => {
    const name = tokens[n]?.trim() || tokens[n] || String(n);
    if (step === 1) return name;
    return name === String(n) ? `${n} …` : `${n} ${name} …`;
  });
  return { names, first, of: (token) => Math.floor(token / step), step, isJoined: false };
}

function joinedAxis(tokens, words, called, length) {
  const names = [];
  const first = [];
  const own = [];
  for (let n = 0; n < length; n += 1) {
    const isNew = n === 0 || words[n] < 0 || words[n] !== words[n - 1];
    if (isNew) {
      first.push(n);
      // the parts of a word may share a character, so that it is not what they are side by side
      names.push(called?.[words[n]] ?? tokens[n]);
    } else if (!called) {
      names[names.length - 1] += tokens[n].replace(/^##/, "");
    }
    own.push(first.length - 1);
  }
  return { names, first, of: (token) => own[token], step: 1, isJoined: true };
}

// the matrix of a head as it is shown: codes along both axes, and the best that is known of each weight
export function matrix(data, layer, head, queries, keys) {
  const codes = data.codes(layer, head);
  const { size, lengths } = data.layers[layer];
  const [rows, columns] = size;
  const exact = data.isSingle(layer) ? Array.from({ length: rows }, (_, query) => data.exact(layer, head, query)) : [];
  const weightAt = (i, j) => (exact[i] ? exact[i][j] : WEIGHTS[codes[i * columns + j]]);
  const single = { rows, columns, codes, weightAt, isExactAt: (i) => Boolean(exact[i]) };
  return queries.isJoined && keys.isJoined ? joinedMatrix(single, queries, keys, lengths) : single;
}

// the mean over the queries of a word, of those that see something, of the sums over the keys of a word: each row still shares out 1
function joinedMatrix(single, queries, keys, lengths) {
  const rows = queries.names.length;
  const wide = keys.names.length;
  const weights = new Float64Array(rows * wide);
  const seen = new Uint8Array(rows * wide).fill(EMPTY);
  const count = new Float64Array(rows);
  for (let i = 0; i < lengths[0]; i += 1) {
    const row = queries.of(i);
    // a token that sees nothing has nothing to share out
    if (single.codes[i * single.columns] !== EMPTY) count[row] += 1;
    for (let j = 0; j < lengths[1]; j += 1) {
      const place = row * wide + keys.of(j);
      weights[place] += single.weightAt(i, j);
      seen[place] = Math.max(seen[place], single.codes[i * single.columns + j]);
    }
  }
  const joined = new Uint8Array(rows * wide);
  for (let n = 0; n < weights.length; n += 1) {
    weights[n] /= Math.max(1, count[Math.floor(n / wide)]);
    joined[n] = kindOf(seen[n]) === "weight" ? nearest(weights[n]) : seen[n];
  }
  const coded = new Uint8Array(rows);
  for (let i = 0; i < lengths[0]; i += 1) if (!single.isExactAt(i)) coded[queries.of(i)] = 1;
  const isExactAt = (row) => coded[row] === 0;
  return { rows, columns: wide, codes: joined, weightAt: (i, j) => weights[i * wide + j], isExactAt };
}
