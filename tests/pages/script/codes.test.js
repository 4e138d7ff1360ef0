import assert from "node:assert/strict";
import test from "node:test";
import { EMPTY, LAST, MASKED, NAN, WEIGHTS, ZERO, entropyOf, formatWeight, kindOf, placeOf } from "../../../src/headwise/pages/assets/source/codes.js";

test("codes below the first level weigh nothing, the last level is 1", () => {
  assert.deepEqual([EMPTY, MASKED, ZERO].map((code) => WEIGHTS[code]), [0, 0, 0]);
  assert.equal(WEIGHTS[LAST], 1);
  assert.ok(Number.isNaN(WEIGHTS[NAN]));
  assert.deepEqual([NAN, EMPTY, MASKED, ZERO, 100].map(kindOf), ["nan", "empty", "masked", "weight", "weight"]);
});

test("neighbouring levels are less than 8.2 % apart, so that the nearest is at most 4 % off", () => {
  for (let code = 4; code <= LAST; code += 1) {
    const ratio = WEIGHTS[code] / WEIGHTS[code - 1];
    assert.ok(ratio > 1.07 && Math.sqrt(ratio) < 1.04);
  }
});

test("a place on a scale never leaves it", () => {
  for (const weight of [NaN, 0, 1e-9, 0.001, 0.5, 1, 1.0000001]) {
    for (const scale of ["log", "linear"]) assert.ok(placeOf(weight, scale) >= 0 && placeOf(weight, scale) <= 1);
  }
  assert.equal(placeOf(0.25, "linear"), 0.25);
  assert.ok(Math.abs(placeOf(0.1, "log") - 2 / 3) < 1e-12);
});

test("a weight is written with the figures that matter", () => {
  assert.deepEqual([NaN, 0, 1, 0.67749, 0.0042, 4.7e-6].map(formatWeight), ["NaN", "0", "1.000", "0.677", "0.0042", "4.7e−6"]);
});

test("entropy is in nats, and NaN where a weight is", () => {
  assert.ok(Math.abs(entropyOf([0.25, 0.25, 0.25, 0.25, 0]) - Math.log(4)) < 1e-12);
  assert.equal(entropyOf([1, 0]), 0);
  assert.ok(Number.isNaN(entropyOf([NaN, 1])));
});
