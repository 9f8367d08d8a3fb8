import type { EvaluationDetails, ObjectLine, ReviewDetails, ReviewRow } from "../messages.ts";
import {
  ask,
  create,
  createBadge,
  createCode,
  createDefinitions,
  createSection,
  formatTime,
  showLater,
} from "./elements.ts";
import { reviews } from "./store.ts";

/** Creates the page of a review; its details are loaded after the page is shown. */
export const createReviewPage = (id: string): Node => {
  const row = reviews.find((review) => review.id === id);
  const head = create("div", ...(row ? describeRow(row) : [create("h1", "Review")]));
  const content = showLater(ask<ReviewDetails>(`review?id=${encodeURIComponent(id)}`), (details) => {
    // After a reload, the page may not have the row yet.
    head.replaceChildren(...describeRow(details.row));
    const sentences = details.sentences.map((text) => create("p.failure", text));
    return create("div", ...sentences, ...details.evaluations.map(createEvaluation));
  });
  return create("div.text", create("p", create("a", { href: "#live" }, "← Live")), head, content);
};

const describeRow = ({ at, operation, object, verdict, user, cluster, milliseconds }: ReviewRow) => [
  create("h1", `${operation} ${object} `, createBadge(verdict)),
  create("p.quiet", `${formatTime(at)}, ${user} in ${cluster}, ${milliseconds} ms`),
];

/** Creates the part of the page about one rule's answer to the review. */
const createEvaluation = (evaluation: EvaluationDetails, index: number, all: readonly EvaluationDetails[]) => {
  const { rule, phase, mode, title, lines, refusal, caseText, ...more } = evaluation;
  const again = all.slice(0, index).some((earlier) => earlier.rule === rule) ? ", called again" : "";
  const isReport = mode !== "enforce" && (refusal !== undefined || lines.some(({ sign }) => sign !== " "));
  return create(
    "article",
    create("h2", create("a", { href: `#rules/${encodeURIComponent(rule)}` }, rule), ` ${phase}${again}`),
    isReport &&
      create(
        "p.quiet",
        `Mode ${mode}: the rule neither refused nor changed the object; it only reported what it would do.`,
      ),
    create("p", `${isReport ? "In mode enforce, it" : "It"} ${title}.`),
    more.isRedacted && create("p.quiet", "The rule reads texts that are redacted here, so its answer may differ."),
    refusal !== undefined && create(isReport ? "p" : "p.denied", refusal),
    ...more.warnings.map((warning) => create("p", `Warning: ${warning}`)),
    createSection("Audit annotations", createDefinitions(more.audit)),
    createSection("The object", createComparison(lines, isReport ? "In mode enforce" : "After")),
    createSection("The conditions that let it through", createDefinitions(more.conditions)),
    createSection("As a case", createCopyButton(caseText), createCode(caseText, "The case")),
  );
};

/** Creates a button that copies a text into the clipboard. */
const createCopyButton = (text: string) => {
  const status = create("span", { role: "status" });
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => status.replaceChildren(" Copied: paste it into the rule's cases.yaml."),
      () => status.replaceChildren(" The browser refuses; select the lines below."),
    );
  return create("p", create("button", { type: "button", click: copy }, "Copy as a case"), status);
};

/** Shows an object before and after its changes, side by side. A third column names the rule that changed a line. */
export const createComparison = (lines: readonly ObjectLine[], after = "After"): Node => {
  const rows: [ObjectLine | undefined, ObjectLine | undefined][] = [];
  // Removed lines that aren't in a row yet. An added line goes beside the first of them.
  const pendingRemoved: ObjectLine[] = [];
  const addPendingRows = () => {
    for (const line of pendingRemoved.splice(0)) rows.push([line, undefined]);
  };
  for (const line of lines) {
    if (line.sign === " ") addPendingRows();
    if (line.sign === "-") pendingRemoved.push(line);
    else rows.push([line.sign === " " ? line : pendingRemoved.shift(), line]);
  }
  addPendingRows();
  if (rows.every(([old, now]) => old === now))
    return createCode(lines.map(({ text }) => text).join("\n"), "The object");
  const classes = { " ": "same", "-": "removed", "+": "added" };
  const createCell = (line: ObjectLine | undefined) =>
    create(`td.${classes[line?.sign ?? " "]}`, line && `${line.sign} ${line.text}`);
  // A browser needs seconds for the layout of many thousand rows. Of a long object, only rows near changes are shown.
  const isNearChange = (index: number) =>
    rows.slice(Math.max(index - 3, 0), index + 4).some(([old, now]) => old !== now);
  const shown = rows.length < 2000 ? rows : rows.filter((_, index) => isNearChange(index));
  const before = shown === rows ? "Before" : "Before, near the changes";
  const heads = [before, after, "Rule"].map((name) => create("th", { scope: "col" }, name));
  const getRule = ([old, now]: (typeof rows)[number] = [undefined, undefined]) => now?.rule ?? old?.rule;
  const body = shown.map((row, index) => {
    // The class `again` hides the name of a rule that the row above has, too.
    const again = getRule(row) === getRule(shown[index - 1]) ? "again" : "";
    return create("tr", ...row.map(createCell), create(`td.${again}`, getRule(row)));
  });
  return create("table.comparison", create("thead", create("tr", ...heads)), create("tbody", ...body));
};
