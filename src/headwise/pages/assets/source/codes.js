// What the bytes of a map mean: the same table as codes.py.
export const EMPTY = 0;
export const MASKED = 1;
export const ZERO = 2;
export const FIRST = 3;
export const LAST = 253;
export const NAN = 255;
// in the place of an exact weight, or of an entropy: the pair may not attend; the row may attend to nothing
export const CLOSED = -1;
export const NOTHING = -2;
const OCTAVES = 28;
const STEPS = (LAST - FIRST) / OCTAVES;

// code -> weight: 0 where there is none, NaN where the model gave NaN
export const WEIGHTS = Float64Array.from({ length: 256 }, (_, code) => {
  if (code === NAN) return NaN;
  return code < FIRST ? 0 : 2 ** ((code - FIRST) / STEPS - OCTAVES);
});

export function weightOf(code) {
  return WEIGHTS[code];
}

// the code nearest to a weight
export function nearest(weight) {
  if (Number.isNaN(weight)) return NAN;
  if (weight < WEIGHTS[FIRST]) return ZERO;
  return Math.min(LAST, Math.round(FIRST + (Math.log2(weight) + OCTAVES) * STEPS));
}

// the kind of entry a code is: a weight, or why there is none
export function kindOf(code) {
  if (code === NAN) return "nan";
  if (code === EMPTY) return "empty";
  if (code === MASKED) return "masked";
  return "weight";
}

// 0..1 along a scale of colours: "linear" in the weight, "log" over the last 3 powers of ten
export function placeOf(weight, scale) {
  if (!(weight > 0)) return 0;
  if (scale === "linear") return Math.min(weight, 1);
  return Math.min(1, Math.max(0, 1 + Math.log10(weight) / 3));
}

export function formatWeight(weight) {
  if (Number.isNaN(weight)) return "NaN";
  if (weight === 0) return "0";
  if (weight < 0.001) return weight.toExponential(1).replace("e-", "e−");
  return weight.toFixed(weight < 0.01 ? 4 : 3);
}

// -sum p log p in nats over weights
export function entropyOf(weights) {
  let sum = 0;
  for (const p of weights) {
    if (Number.isNaN(p)) return NaN;
    if (p > 0) sum -= p * Math.log(p);
  }
  return sum;
}
