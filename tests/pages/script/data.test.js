import { Buffer } from "node:buffer";
import assert from "node:assert/strict";
import test from "node:test";
import { Data, floatsOf } from "../../../src/headwise/pages/assets/source/data.js";
import { axis, matrix } from "../../../src/headwise/pages/assets/source/axis.js";
import { WEIGHTS, nearest } from "../../../src/headwise/pages/assets/source/codes.js";

const base64 = (numbers) => Buffer.from(Uint8Array.from(numbers)).toString("base64");
const floats = (numbers) => Buffer.from(Float32Array.from(numbers).buffer).toString("base64");

// two heads, three queries of which two are one word, block of 1
function small() {
  const layer = { heads: 2, queries: 0, keys: 0, lengths: [3, 3], block: [1, 1], size: [3, 3], thumb: [3, 3], exact: [2], hidden: 0, distance: [] };
  const codes = [253, 1, 1, 243, 243, 1, 234, 234, 243, ...new Array(9).fill(0)];
  const blocks = { "codes-0": base64(codes), "exact-0": floats([0.25, 0.25, 0.5, 0, 0, 0]), "entropy-0": floats([0, 1, 2, 3, 4, 5]) };
  const sides = [{ tokens: ["a", "b", "##c"], words: [0, 1, 1] }];
  return new Data({ layers: [layer], sides }, (name) => blocks[name] ?? null);
}

test("numbers are little-endian float32", () => {
  assert.deepEqual([...floatsOf(floats([0.5, -2, NaN]))], [0.5, -2, NaN]);
});

test("a row is exact where it is carried, and read from its bytes where it is not", () => {
  const data = small();
  assert.deepEqual([...data.row(0, 0, 2).weights], [0.25, 0.25, 0.5]);
  assert.equal(data.row(0, 0, 2).isExact, true);
  assert.equal(data.row(0, 0, 1).isExact, false);
  assert.equal(data.weight(0, 0, 1, 2).weight, 0);
  assert.deepEqual([...data.sums("entropy", 0, 1)], [3, 4, 5]);
});

test("a layer is read once its last block is there", () => {
  const data = small();
  assert.equal(data.isRead(0), true);
  assert.equal(new Data(data.header, (name) => (name === "exact-0" ? null : "")).isRead(0), false);
});

test("joined words share out what their tokens share out", () => {
  const data = small();
  const side = axis(data, 0, "queries", true);
  assert.deepEqual(side.names, ["a", "bc"]);
  assert.deepEqual(side.first, [0, 1]);
  assert.deepEqual([0, 1, 2].map(side.of), [0, 1, 1]);
  const joined = matrix(data, 0, 0, side, axis(data, 0, "keys", true));
  const w = (code) => WEIGHTS[code];
  // the last row is carried exactly: 0.25, 0.25, 0.5
  assert.ok(Math.abs(joined.weightAt(1, 0) - (w(243) + 0.25) / 2) < 1e-12);
  assert.ok(Math.abs(joined.weightAt(1, 1) - (w(243) + 0.75) / 2) < 1e-12);
  assert.equal(joined.codes[0], 253);
  assert.equal(joined.codes[1], 1);
});

test("a row that sees nothing stays one when words are joined", () => {
  const data = small();
  const both = ["queries", "keys"].map((which) => axis(data, 0, which, true));
  assert.deepEqual([...matrix(data, 0, 1, ...both).codes], [0, 0, 0, 0]);
});

test("the nearest code of a code's own weight is that code", () => {
  for (let code = 3; code <= 253; code += 1) assert.equal(nearest(WEIGHTS[code]), code);
  assert.deepEqual([nearest(NaN), nearest(0), nearest(1e-20)], [255, 2, 2]);
});

test("a pooled side names the first token of each block", () => {
  const layer = { lengths: [5, 5], block: [2, 2], queries: 0, keys: 0 };
  const data = new Data({ layers: [layer], sides: [{ tokens: ["a", "b", "c", "d", "e"], words: null }] }, () => null);
  const side = axis(data, 0, "queries", true);
  assert.deepEqual(side.first, [0, 2, 4]);
  assert.equal(side.of(3), 1);
  assert.equal(side.isJoined, false);
});

test("an exact row tells what is masked, what is zero, and what sees nothing", () => {
  const layer = { heads: 1, queries: 0, keys: 0, lengths: [4, 4], block: [2, 2], size: [2, 2], thumb: [2, 2], exact: [0, 3], hidden: 0.5 };
  const blocks = { "codes-0": base64([253, 1, 253, 253]), "exact-0": floats([1, 0, -1, -1, -2, -2, -2, -2]) };
  const data = new Data({ layers: [layer], sides: [{ tokens: ["a", "b", "c", "d"], words: null }] }, (name) => blocks[name] ?? null);
  assert.deepEqual([...data.row(0, 0, 0).weights], [1, 0, 0, 0]);
  assert.deepEqual([...data.row(0, 0, 0).codes], [253, 2, 1, 1]);
  assert.deepEqual([...data.row(0, 0, 3).codes], [0, 0, 0, 0]);
  assert.deepEqual(data.weight(0, 0, 0, 2), { weight: 0, code: 1, isExact: true });
});

test("a joined word is exact only where each of its tokens is, and its tokens that see nothing do not count", () => {
  const data = small();
  const both = ["queries", "keys"].map((which) => axis(data, 0, which, true));
  assert.equal(matrix(data, 0, 0, ...both).isExactAt(1), false);
  data.layers[0].exact = [1, 2];
  data.held.clear();
  const rows = [0.5, 0.5, -1, 0.25, 0.25, 0.5, 0.5, 0.25, 0.25, -2, -2, -2];
  const again = new Data(data.header, (name) => (name === "exact-0" ? floats(rows) : data.text(name)));
  assert.equal(matrix(again, 0, 0, ...both).isExactAt(1), true);
  const half = [253, 1, 1, 0, 0, 0, 243, 243, 243, ...new Array(9).fill(0)];
  const other = new Data({ ...data.header, layers: [{ ...data.layers[0], exact: [] }] }, (name) => (name === "codes-0" ? base64(half) : null));
  const joined = matrix(other, 0, 0, ...both);
  assert.ok(Math.abs(joined.weightAt(1, 0) - WEIGHTS[243]) < 1e-12);
});
