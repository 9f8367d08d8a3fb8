import type { CatalogueSummary, RuleDetails } from "../messages.ts";
import { ask, create, createCode, createSection, createTable, describeNoMatch, showLater } from "./elements.ts";
import { createMarkdown } from "./markdown.ts";
import { countReviews, createPlots } from "./plots.ts";
import { findReviews, setPageUpdate } from "./store.ts";

const countedReviews = "Counted while a page is open. Denials include those that modes warn and audit only report.";
const formatMilliseconds = (value: number | null = null) => (value === null ? "–" : value.toFixed(1));
/** Returns a rule's mode in all clusters, or "dev: warn, prod: enforce". A rule that can't be loaded has no modes. */
const formatModes = (modes: Record<string, string>) => {
  const [first, ...others] = new Set(Object.values(modes));
  const modesByCluster = Object.entries(modes).map((entry) => entry.join(": "));
  return others.length === 0 ? (first ?? "can't be loaded") : modesByCluster.join(", ");
};

/** Creates the list of rules, with a search field and numbers that are updated. */
export const createRulesPage = (): Node => {
  const search = create("input", { type: "search", placeholder: "Search", "aria-label": "Search the rules" });
  const noMatch = create("p.quiet", { role: "status" });
  const fill = ({ rules }: CatalogueSummary) => {
    const cells = rules.map(({ name, summary, phases, modes }) => {
      const link = create("a", { href: `#rules/${encodeURIComponent(name)}` }, name);
      return [link, phases.join(", "), formatModes(modes), "", "", "", summary];
    });
    const table = createTable(["Rule", "Phase", "Mode", "Calls", "Denials", "p95 ms", "What it does"], cells);
    table.classList.add("rules");
    const rows = [...table.querySelectorAll<HTMLTableRowElement>("tbody tr")];
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      noMatch.textContent = rows.every(({ hidden }) => hidden) ? describeNoMatch("rule", search.value) : "";
    };
    search.addEventListener("input", filter);
    // Words may have been typed while the list was loading.
    filter();
    // Updates change cells of the existing rows, so that a row keeps the focus.
    setPageUpdate(() => {
      for (const [index, { name }] of rules.entries()) {
        const { calls, denials, percentiles } = countReviews(findReviews(name));
        const texts = [calls, denials, formatMilliseconds(percentiles[1])];
        const firstColumn = 3;
        for (const [column, text] of texts.entries())
          rows[index]?.cells[firstColumn + column]?.replaceChildren(String(text));
      }
    });
    return table;
  };
  const tools = create("div.tools", { role: "search" }, search, create("span.quiet", countedReviews));
  return create("div", create("h1", "Rules"), tools, showLater(ask<CatalogueSummary>("rules"), fill), noMatch);
};

export const createRulePage = (name: string): Node =>
  create(
    "div.text",
    create("p", create("a", { href: "#rules" }, "← Rules")),
    create("h1", name),
    showLater(ask<RuleDetails>(`rule?name=${encodeURIComponent(name)}`), createRule),
  );

/** Creates the page of a rule. */
const createRule = ({ name, source, summary, phases, modes, setups, parity, cases, readme }: RuleDetails) => {
  const numbers = create("div");
  setPageUpdate(() => {
    const rows = findReviews(name);
    const { calls, denials, percentiles } = countReviews(rows);
    const heads = ["Calls", "Denials", "p50 ms", "p95 ms", "p99 ms"];
    numbers.replaceChildren(createTable(heads, [[calls, denials, ...percentiles.map(formatMilliseconds)]]));
    if (calls > 0) numbers.append(createPlots(rows));
  });
  const createCase = ({ name, text }: RuleDetails["cases"][number]) =>
    create("details", create("summary", `It ${name}`), createCode(text, name));
  return create(
    "div",
    create("p", summary),
    create("p.quiet", `${phases.join(", ")}; ${formatModes(modes)}; from ${source}`),
    createSection("Reviews", create("p.quiet", countedReviews), numbers),
    createSection(
      "Settings, entries and exemptions",
      ...setups.map(({ cluster, text }) => createCode(`# ${cluster}\n${text}`, `Config in ${cluster}`)),
    ),
    createSection(
      "Parity with the compiled-in plugin",
      parity && create("p", "Of 1000 requests: equal answers, known differences, unexplained differences."),
      parity && createTable(parity.minors, [parity.cells]),
    ),
    createSection(`${cases.length} cases`, ...cases.map(createCase)),
    createSection("README", createMarkdown(readme)),
  );
};
