// Views: all there are, and those that a page has.
import { headView } from "./heads.js";
import { mapView } from "./map.js";
import { overview } from "./overview.js";
import { rowView } from "./row.js";
import { statisticsView } from "./statistics.js";
import { stepsView } from "./steps.js";
import { tableView } from "./tables.js";

export const VIEWS = {
  overview, heads: headView, map: mapView, row: rowView, statistics: statisticsView,
  compare: tableView("compare"), effects: tableView("effects"), steps: stepsView,
};
export const SAID = {
  overview: "page.view.overview", heads: "page.view.heads", map: "page.view.map", row: "page.view.row",
  statistics: "page.view.statistics", compare: "page.view.compare", effects: "page.view.effects", steps: "page.view.steps",
};

// Compare and Effects are there where the page has their tables
const OF_TABLES = ["compare", "effects"];

export function viewsOf(header, hasMaps) {
  if (!hasMaps) return ["steps"];
  const given = new Set(header.tables.map((table) => table.view));
  return Object.keys(VIEWS).filter((view) => !OF_TABLES.includes(view) || given.has(view));
}
