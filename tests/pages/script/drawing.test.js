import assert from "node:assert/strict";
import test from "node:test";
import { NOTHING } from "../../../src/headwise/pages/assets/source/codes.js";
import { bytesOfColour, inkOn } from "../../../src/headwise/pages/assets/source/colours.js";
import { SvgPen, escaped } from "../../../src/headwise/pages/assets/source/pen.js";
import { fitted, labels, shortened } from "../../../src/headwise/pages/assets/source/layout.js";
import { headOf, number } from "../../../src/headwise/pages/assets/source/steps.js";
import { downsampled } from "../../../src/headwise/pages/assets/source/chart.js";
import { savedName } from "../../../src/headwise/pages/assets/source/saving.js";
import { strength } from "../../../src/headwise/pages/assets/source/heads.js";
import { Wording } from "../../../src/headwise/pages/assets/source/wording.js";

test("text in an SVG is text, and holds no sign that XML forbids", () => {
  assert.equal(escaped("<b a=\"1\" b='2'>&\u0000\u001b"), "&lt;b a=&quot;1&quot; b=&#39;2&#39;&gt;&amp;��");
  const pen = new SvgPen(10, 20, "#fff", "a <b>.svg");
  pen.inside(0, 0, 1, 1, () => pen.line(0, 0, 1, 1, "red", 1));
  pen.text("</text><script>", 1, 2, { colour: '"red' });
  assert.ok(!pen.svg.includes("<script") && !pen.svg.includes('""red'));
  assert.ok(pen.svg.includes('<clipPath id="a-b-svg-clip-1">') && pen.svg.includes('<g clip-path="url(#a-b-svg-clip-1)">'));
  assert.ok(pen.svg.startsWith('<svg xmlns="http://www.w3.org/2000/svg" width="10" height="20"'));
});

test("a map fits the width, whatever its shape", () => {
  for (const [rows, columns] of [[1, 1], [16, 16], [1, 8192], [8192, 1], [353, 353], [3, 900]]) {
    for (const width of [360, 720, 1240]) {
      const names = Array.from({ length: Math.max(rows, columns) }, (_, n) => String(n));
      const { plot, cell, width: whole } = fitted(width, rows, columns, names.slice(0, rows), names.slice(0, columns));
      assert.ok(whole <= Math.max(width, 240) + 1, `${rows} × ${columns} in ${width}: ${whole}`);
      assert.ok(plot.height >= 40 && plot.height <= 900);
      assert.ok(Math.abs(plot.width - cell.width * columns) < 1e-6);
    }
  }
});

test("labels stand apart and inside", () => {
  const found = labels(1000, 0.8, 0, 800, 15);
  assert.ok(found.length > 30 && found.every(([, at], n) => n === 0 || at - found[n - 1][1] >= 15));
  assert.deepEqual(labels(3, 40, 0, 120, 15).map(([n]) => n), [0, 1, 2]);
  assert.equal(shortened("animals", 4), "ani…");
  assert.equal(shortened("👩🏽‍🚀ab", 9), "👩🏽‍🚀ab");
});

test("an entry belongs to the head that its place is of", () => {
  assert.deepEqual(Array.from({ length: 12 }, (_, n) => headOf({ axis: 1, each: 1 }, [1, 2, 3, 2], n)), [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
  assert.deepEqual(Array.from({ length: 8 }, (_, n) => headOf({ axis: 2, each: 2 }, [1, 2, 4], n)), [0, 0, 1, 1, 0, 0, 1, 1]);
  assert.deepEqual(Array.from({ length: 4 }, (_, n) => headOf({ of: [0, 1, null, 1] }, [2, 2], n)), [0, 1, null, 1]);
  assert.equal(headOf(null, [1], 0), null);
});

test("numbers of a step are short, and what is not finite is said", () => {
  assert.deepEqual([1, -2, 0.456, "-inf", "nan"].map(number), ["1", "−2", "0.46", "−∞", "nan"]);
});

test("more bars than pixels show the largest of each run", () => {
  const values = Array.from({ length: 1000 }, (_, n) => (n === 777 ? 5 : 0));
  const shown = downsampled(values, 90.5);
  assert.equal(shown.length, 90);
  assert.equal(Math.max(...shown), 5);
  assert.deepEqual(downsampled([1, NaN, 2], 10), [1, NaN, 2]);
  assert.deepEqual(downsampled([1, NaN, 2, 3, NOTHING, 0.5, NOTHING, NOTHING], 4), [NaN, 3, 0.5, NOTHING]);
});

test("a saved file has a name that every system takes", () => {
  const name = savedName({ title: "a/b: <c> 你好 ..\\" }, { view: "map", layer: 1, head: 2 }, "svg");
  assert.equal(name, "a-b-c-你好-map-L1H2.svg");
  assert.equal(savedName({ title: "///" }, { view: "row", layer: 0, head: 0 }, "png"), "headwise-row-L0H0.png");
});

test("the strength of a key is the largest over the heads, and NaN is none", () => {
  const made = (weights) => ({ head: 0, matrix: { rows: 1, weightAt: (i, j) => weights[j] } });
  assert.deepEqual([...strength(0, 3, [made([0.1, 0.5, NaN]), made([0.3, 0.2, 0])])], [0.3, 0.5, 0]);
  assert.deepEqual([...strength(4, 2, [made([1, 1])])], [0, 0]);
});

test("a sentence has its values filled in, once, and a language that is not there is English", () => {
  const words = new Wording({ en: { "page.a": "{x} of {y}" }, zh: { "page.a": "{y} 之 {x}" } }, "__proto__");
  assert.equal(words.say("page.a", { x: "{y}", y: 2 }), "{y} of 2");
  words.lang = "zh";
  assert.equal(words.say("page.a", { x: 1, y: 2 }), "2 之 1");
  assert.throws(() => words.say("page.b"), /page\.b/);
});

test("ink on any colour can be read: WCAG asks for 4.5 to 1", () => {
  const part = (byte) => (byte / 255 <= 0.04045 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  let least = Infinity;
  for (let red = 0; red < 256; red += 15) for (let green = 0; green < 256; green += 15) for (let blue = 0; blue < 256; blue += 15) {
    const [a, b] = [light([red, green, blue]), light(bytesOfColour(inkOn([red, green, blue])))];
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  assert.ok(least >= 4.5, String(least));
  assert.deepEqual(bytesOfColour("#cc3311"), [204, 51, 17]);
});
