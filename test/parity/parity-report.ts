import { formatTable } from "../../infra/cli/command.ts";
import { minors, newestMinor } from "../control-plane/binaries.ts";
import type { CaseDifference, RealServerCaseResults, RuleCaseResults } from "./cases/cases.ts";
import type { ParityDifference, PortParityResult } from "./parity.ts";

/**
 * Returns the minors that the option --minor lists, the oldest first. Without this option, returns all minors if
 * `isAll` is true, otherwise only the newest.
 */
export const chooseComparedMinors = (option: string | undefined, isAll: boolean): string[] => {
  const chosen = option?.split(",") ?? (isAll ? minors : [newestMinor]);
  return chosen.toSorted((one, other) => minors.indexOf(one) - minors.indexOf(other));
};

/**
 * The headings of the table of compared rules, whose rows are printed as each rule is finished. The last four are about
 * calls of the rule: all, those that refused or changed an object, those that there would be without its
 * matchConditions, and the percentage that these conditions save.
 */
export const parityTableHeadings = [
  "RULE",
  "REQUESTS",
  "EQUAL",
  "KNOWN",
  "UNEXPLAINED",
  "CALLS",
  "ACTED",
  "WITHOUT CONDITIONS",
  "SAVED",
];

/** Returns a rule's row of the parity table, in the order of `parityTableHeadings`. */
export const buildParityTableRow = ({
  rule,
  requests,
  equal,
  known,
  unexplained,
  calls,
}: PortParityResult): (string | number)[] => [
  rule,
  requests,
  equal,
  sumCounts(known),
  unexplained,
  ...buildCallCells({ calls }),
];

/**
 * Returns the cells of a row with the numbers of calls, and the percentage of calls that matchConditions save. `acted`
 * is the number of calls in which the rule refused or changed an object.
 */
const buildCallCells = ({ calls }: Partial<PortParityResult> = {}): (string | number)[] => {
  if (!calls) return ["-", "-", "-", "-"];
  const { made, acted, withoutConditions } = calls;
  return [
    made,
    acted,
    withoutConditions,
    withoutConditions > 0 ? `${Math.round(100 * (1 - made / withoutConditions))}%` : "-",
  ];
};

/** Aligns one row of the parity table below its headings. Each row is printed alone, because all rows take minutes. */
export const alignParityTableRow = (cells: (string | number)[], longestName: number): string =>
  cells
    .map((cell, at) =>
      at === 0 ? String(cell).padEnd(longestName) : String(cell).padStart(parityTableHeadings[at]?.length ?? 0),
    )
    .join("  ");

/**
 * Describes the known differences, the matchConditions that failed, and the first unexplained differences, each with a
 * command that repeats it.
 */
export const describeParityDifferences = (found: PortParityResult[], options: string): string =>
  [
    ...(listReasons(found).length > 0
      ? ["\nKnown differences:\n", ...listReasons(found).map((reason) => `- ${reason}\n`)]
      : []),
    ...found.flatMap(({ failedConditions }) =>
      Object.entries(failedConditions).map(
        ([webhook, count]) =>
          `\nThe API server could not evaluate the matchConditions of ${webhook} ${count === 1 ? "once" : `${count} times`}; each counts as unexplained.\n`,
      ),
    ),
    ...found.flatMap(({ rule, differences }) =>
      differences.map(
        (difference) => `\n${describeDifference(rule, difference)}\nTo repeat: npm run parity -- ${rule} ${options}\n`,
      ),
    ),
  ].join("");

/** Describes a difference: the requests that lead to it, and the diff of the answers to the last one. */
const describeDifference = (rule: string, { calls, diff, recurs, withoutConditions }: ParityDifference) =>
  [
    `${rule}${withoutConditions ? ", called without its matchConditions," : ""} differs from upstream (-) in the answer to the last of`,
    ...calls.map((call) => `  ${call}`),
    ...(recurs ? [] : ["but not when the requests were repeated"]),
    diff,
  ].join("\n");

const listReasons = (found: PortParityResult[]) => [...new Set(found.flatMap(({ known }) => Object.keys(known)))];

const sumCounts = (counts: Record<string, number>) => Object.values(counts).reduce((one, other) => one + other, 0);

/** Describes the results of cases: a table, the cases that can't be sent or compared, and those that differ. */
export const describeCaseResults = (results: RuleCaseResults[]): string => {
  const titles = caseHeadings.map((title) => title.toUpperCase());
  const aligned = results.map((one) =>
    buildCaseRow(one).map((cell, at) => (at > 0 ? cell.padStart(titles[at]?.length ?? 0) : cell)),
  );
  const { notSent, leftOut } = listExceptions(results);
  return [
    `\n${formatTable([titles, ...aligned])}`,
    ...(notSent.length > 0 ? [`\n${notSentTitle}:\n\n${notSent.join("\n")}\n`] : []),
    ...(leftOut.length > 0 ? [`\n${leftOutTitle}:\n\n${leftOut.join("\n")}\n`] : []),
    ...results.flatMap(({ rule, outcomes, differences }) =>
      [...differences, ...(outcomes?.differences ?? [])].map((difference) => describeCase(rule, difference)),
    ),
  ].join("");
};

// Headings of a table that counts a rule's cases: all, those answered as the case states, those that an API server
// can't send to the rule, those answered as by the plugin, and those with a removed plugin's recorded answers.
const caseHeadings = [
  "rule",
  "cases",
  "answered as stated",
  "not sent",
  "answered as by the plugin",
  "recorded answers",
];

/** Returns a rule's cells under `caseHeadings`. A known difference from the plugin is counted as an equal answer. */
const buildCaseRow = ({ rule, cases, asStated, notSent, pluginComparison, outcomes }: RuleCaseResults): string[] => [
  rule,
  ...[cases, asStated, notSent.length].map(String),
  pluginComparison ? String(pluginComparison.equal + sumCounts(pluginComparison.known)) : "-",
  // The number of recorded answers of a removed plugin that the rule gives, too.
  outcomes ? String(outcomes.asStated) : "-",
];

const describeCase = (rule: string, { name, from, diff }: CaseDifference) => {
  const expected = from === "case" ? "what the case states" : "upstream";
  return `\n${rule}, "${name}": the API server's answer (+) differs from ${expected} (-)\n${diff}\n`;
};

const knownTitle = "Known differences, with their rules";
const notSentTitle =
  "Cases that an API server can't send to the rule unchanged, with the reason or the API server's refusal";
const leftOutTitle = "Cases that aren't compared with the plugin, with the reason";

/** Returns two lists in Markdown: cases that can't be sent unchanged, and cases that aren't compared with a plugin. */
const listExceptions = (results: RuleCaseResults[]): { notSent: string[]; leftOut: string[] } => {
  const describe = (rule: string, cases: RealServerCaseResults["notSent"] = []) =>
    cases.map(({ name, reason }) => `- ${rule}, "${name}": ${hideLongValues(reason)}`);
  return {
    notSent: results.flatMap(({ rule, notSent }) => describe(rule, notSent)),
    leftOut: results.flatMap(({ rule, whyNotCompared, pluginComparison }) => [
      ...(whyNotCompared === undefined ? [] : [`- ${rule}: ${whyNotCompared}`]),
      ...describe(rule, pluginComparison?.leftOut),
    ]),
  };
};

/** Replaces a whole object, such as a pod spec, and long base64 in an error by `…`. */
const hideLongValues = (reason: string): string =>
  reason.replace(/(?<=Invalid value: )(?:\{.*\}|"[\w+/=]{100,}")(?=: )/g, "…");

/** Reports whether no rule has an unexplained difference from its plugin or a case with an unexpected answer. */
export const areAsExpected = (results: RuleCaseResults[]): boolean =>
  results.every(({ differences, outcomes }) => differences.length === 0 && !outcomes?.differences.length);

// Comments around the report in parity.md, and before its part about cases, which a run without requests writes alone.
const [begin, casesBegin, end] = [
  "<!-- Written by npm run parity -- --write. -->",
  "<!-- Written by npm run parity -- --requests 0 --write. -->",
  "<!-- End of parity. -->",
];

/** The results of all compared rules and cases with one minor of Kubernetes. The fields are part of the JSON output. */
export interface MinorParityResults {
  /** The version of kube-apiserver, such as v1.37.2. */
  kubernetes: string;
  rules: PortParityResult[];
  cases: RuleCaseResults[];
}

interface ParityRuns {
  runs: MinorParityResults[];
  requests: number;
  seed: number;
  /** The names of all rules, in the order of the catalogue. */
  names: readonly string[];
}

/**
 * Returns the number of requests and the seed of the results in docs/background/parity.md; undefined if it has none.
 */
export const findReportedRun = (page: string): { requests: number; seed: number } | undefined => {
  const [, requests, seed] = / --requests (\d+) --seed (\d+) --write$/m.exec(page) ?? [];
  return requests === undefined ? undefined : { requests: Number(requests), seed: Number(seed) };
};

/** Returns the versions of kube-apiserver that docs/background/parity.md has results of. */
export const listReportedVersions = (page: string): string[] => {
  const { requestsPart, casesPart } = splitReport(page);
  const headings = parseTable(requestsPart)[0] ?? [];
  return [...new Set([...headings, findVersionOfCases(casesPart)])].filter((text) => text.startsWith("v"));
};

/**
 * Returns the text of docs/background/parity.md with these results. Lines about rules and minors that weren't compared
 * stay as they are, and so does the table of requests if none was sent. The numbers of calls and of cases are those of
 * the newest minor.
 */
export const insertParityReport = (page: string, results: ParityRuns): string => {
  const { before, requestsPart, casesPart, after } = splitReport(page);
  const parts = [
    before,
    begin,
    results.requests > 0 ? describeRequestResults(results, requestsPart) : requestsPart,
    casesBegin,
    describeCasesOfEveryRule(results, casesPart),
  ];
  return `${parts.map((part) => part.trim()).join("\n\n")}\n\n${end}${after}`;
};

/** Splits the page into the text before the report, the report's two parts, and the text after the report. */
const splitReport = (page: string) => {
  const [before = "", rest] = page.split(begin);
  const [report = "", after = "\n"] = rest?.split(end) ?? [];
  const [requestsPart = "", casesPart = ""] = report.split(casesBegin);
  return { before, requestsPart, casesPart, after };
};

/**
 * Describes the results of generated requests. The results of rules and minors that were not compared in these runs are
 * taken from `oldText`.
 */
const describeRequestResults = ({ runs, requests, seed, names }: ParityRuns, oldText: string): string => {
  const [headings = [], ...rows] = parseTable(oldText);
  const oldVersions = headings.filter((heading) => heading.startsWith("v"));
  const versions = new Map(
    [...oldVersions, ...runs.map(({ kubernetes }) => kubernetes)].map((text) => [toMinor(text), text]),
  );
  const compared = [...versions]
    .filter(([minor]) => minors.includes(minor))
    .sort(([one], [other]) => compareMinors(one, other));
  const newest = compared.at(-1)?.[0];
  const table = names.flatMap((name) => {
    const oldRow = rows.find(([rule]) => rule === name) ?? [];
    const findResult = (minor: string) => {
      const run = runs.find(({ kubernetes }) => toMinor(kubernetes) === minor);
      return run?.rules.find(({ rule }) => rule === name);
    };
    const cells = compared.map(([minor]) => {
      const result = findResult(minor);
      if (result) return [result.equal, sumCounts(result.known), result.unexplained].join(" / ");
      return oldRow[headings.findIndex((heading) => toMinor(heading) === minor)] ?? "-";
    });
    const resultOfNewest = findResult(newest ?? "");
    // If the newest minor wasn't compared, the cells about calls stay as they are; without old cells, they become "-".
    const keepsCalls = resultOfNewest === undefined && oldRow.length > 0;
    const calls = keepsCalls ? oldRow.slice(-callColumns.length) : buildCallCells(resultOfNewest);
    return cells.every((cell) => cell === "-") ? [] : [[name, ...cells, ...calls]];
  });
  const comparedMinors = compared.map(([minor]) => minor);
  const reasons = mergeReasons(listItems(oldText, knownTitle), { runs, names, comparedMinors });
  const command = `npm run parity -- --minor ${comparedMinors.join(",")} --requests ${requests} --seed ${seed} --write`;
  return [
    "## Generated requests",
    `This command sends the same ${requests} generated requests for each rule to two API servers. One has the compiled-in plugin,\nand the other one calls the rule instead.\n\n    ${command}\n\n- A cell such as \`884 / 116 / 0\` counts 884 equal answers, 116 answers with a known difference, and no answer with an\n  unexplained difference. "-" means that this version has no such plugin.\n- Two answers are equal if their status, object, message, details, warnings and audit annotations are equal.\n- The last four columns are about ${compared.at(-1)?.[1]}.`,
    toMarkdown([ruleHeading, ...compared.map(([, version]) => version), ...callColumns], table),
    ...(reasons.length > 0 ? [`### ${knownTitle}\n\n${reasons.join("\n")}`] : []),
  ].join("\n\n");
};

/**
 * Returns the known differences with their rules, such as "- the order differs (a-rule)"; the old items of the page
 * come first. The page keeps a difference of a rule until a run over all minors doesn't show the difference.
 */
const mergeReasons = (
  oldItems: readonly string[],
  { runs, names, comparedMinors }: Pick<ParityRuns, "runs" | "names"> & { comparedMinors: readonly string[] },
): string[] => {
  const rulesByReason = new Map<string, Set<string>>();
  for (const item of oldItems) {
    const [, reason = item, list = ""] = /^- (.*) \(([^()]*)\)$/.exec(item) ?? [];
    rulesByReason.set(reason, new Set(list.split(", ").filter((name) => names.includes(name))));
  }
  const isComplete = comparedMinors.every((minor) => runs.some((run) => toMinor(run.kubernetes) === minor));
  const comparedRules = new Set(runs.flatMap(({ rules }) => rules.map(({ rule }) => rule)));
  if (isComplete) for (const rules of rulesByReason.values()) for (const name of comparedRules) rules.delete(name);
  // Of the new reasons, those of the newest minor come first, and the newest minor is last in `runs`.
  for (const { rule, known } of runs.toReversed().flatMap(({ rules }) => rules))
    for (const reason of Object.keys(known))
      rulesByReason.set(reason, (rulesByReason.get(reason) ?? new Set()).add(rule));
  return [...rulesByReason].flatMap(([reason, rules]) => {
    const listed = names.filter((name) => rules.has(name));
    return listed.length > 0 ? [`- ${reason} (${listed.join(", ")})`] : [];
  });
};

/** Describes the results of cases. The results of rules without cases in the last run are taken from `oldText`. */
const describeCasesOfEveryRule = ({ runs, names }: ParityRuns, oldText: string): string => {
  const { kubernetes = "", cases = [] } = runs.at(-1) ?? {};
  // The table is about the newest minor, so the results of an older minor don't change it.
  const oldVersion = findVersionOfCases(oldText);
  if (oldVersion !== "" && compareMinors(toMinor(kubernetes), toMinor(oldVersion)) < 0) return oldText;
  const rows = new Map([...parseTable(oldText).slice(1), ...cases.map(buildCaseRow)].map((row) => [row[0], row]));
  const mergeItems = (title: string, newItems: string[]) => {
    const merged = names.flatMap((name) => {
      const isOfRule = (item: string) => item.startsWith(`- ${name}, `) || item.startsWith(`- ${name}: `);
      const oldItems = listItems(oldText, title).filter(isOfRule);
      if (!cases.some(({ rule }) => rule === name)) return oldItems;
      // An old item with the same words in another order stays as it is.
      const keepOld = (item: string) => oldItems.find((old) => sortWords(old) === sortWords(item)) ?? item;
      return newItems.filter(isOfRule).map(keepOld);
    });
    return merged.length > 0 ? [`### ${title}\n\n${merged.join("\n")}`] : [];
  };
  const { notSent, leftOut } = listExceptions(cases);
  return [
    "## Cases",
    `This table counts the [cases](../reference/glossary.md#rules) of every rule, sent to kube-apiserver ${kubernetes}:\n\n- \`answered as stated\`: the rule gave the answer that the case states;\n- \`not sent\`: the API server can't send the case to the rule as it is;\n- \`answered as by the plugin\`: the compiled-in plugin gave the same answer, except for known differences;\n- \`recorded answers\`: the rule gave an answer that was recorded from a plugin which Kubernetes has removed;\n- "-": nothing was compared.`,
    toMarkdown(
      caseHeadings,
      names.flatMap((name) => [rows.get(name) ?? []].filter(({ length }) => length > 0)),
    ),
    ...mergeItems(notSentTitle, notSent),
    ...mergeItems(leftOutTitle, leftOut),
  ].join("\n\n");
};

const findVersionOfCases = (text: string): string => /sent to kube-apiserver (v[\d.]+):/.exec(text)?.[1] ?? "";

/** Sorts the words of a line, because an API server lists errors in Go's order of maps, which is random. */
const sortWords = (line: string): string =>
  line
    .split(/[\s,[\]]+/)
    .sort()
    .join(" ");

const toMinor = (version: string): string => /^v(\d+\.\d+)\./.exec(version)?.[1] ?? "";
const compareMinors = (one: string, other: string): number => minors.indexOf(one) - minors.indexOf(other);

/** Returns the rows of a Markdown table as lists of cells; the first row has the headings. */
const parseTable = (text: string): string[][] =>
  [...text.matchAll(/^\| (.*) \|$/gm)].map(([, line = ""]) => line.split(" | ")).filter(([first]) => first !== "---");

/** Returns the items of a list below its title. */
const listItems = (text: string, title: string): string[] =>
  (text.split(`### ${title}\n\n`)[1] ?? "")
    .split("\n\n")[0]
    ?.split("\n")
    .filter((line) => line.startsWith("- ")) ?? [];

const ruleHeading = "rule (equal answers / known differences / unexplained differences)";
const callColumns = [
  "calls of the rule",
  "calls that refused or changed something",
  "calls without matchConditions",
  "calls that matchConditions save",
];

const toMarkdown = (headings: string[], rows: (string | number)[][]) =>
  [headings, headings.map((_, at) => (at === 0 ? "---" : "---:")), ...rows]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n");
