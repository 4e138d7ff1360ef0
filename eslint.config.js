// How the script of the page is checked: all that ESLint recommends, and what keeps modules short and plain.
import js from "@eslint/js";

const browser = [
  "Blob", "CSSStyleSheet", "DOMException", "DataView", "HTMLElement", "Path2D", "URL", "URLSearchParams", "atob", "clearInterval", "clearTimeout",
  "document", "getComputedStyle", "setInterval", "setTimeout", "window",
];

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: Object.fromEntries(browser.map((name) => [name, "readonly"])) },
    rules: {
      "eqeqeq": "error",
      "max-lines": ["error", 300],
      "max-lines-per-function": ["error", { max: 320 }],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-properties": ["error", ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({ property, message: "text is set as text" }))],
      "no-restricted-globals": ["error", "fetch", "XMLHttpRequest", "WebSocket", "EventSource", "localStorage"],
      "no-shadow": "error",
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
