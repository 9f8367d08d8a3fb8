import { formatTable } from "../../infra/cli/command.ts";
import { minors, newestMinor } from "../control-plane/binaries.ts";
import type { CaseDifference, RealServerCaseResults, RuleCaseResults } from "./cases/cases.ts";
import type { ParityDifference, PortParityResult } from "./parity.ts";

/** Returns the minors of the option --minor, the oldest first; without it all of them, or the newest alone. */
export const chooseComparedMinors = (option: string | undefined, isAll: boolean): string[] => {
  const wanted = option?.split(",") ?? (isAll ? minors : [newestMinor]);
  return wanted.toSorted((one, other) => minors.indexOf(one) - minors.indexOf(other));
};

/** The headings of the table of ports, whose rows are printed as each port is finished. */
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

/** Returns a port's row of the parity table, in the order of `parityTableHeadings`. */
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

/** Returns the numbers of calls, and the percentage of calls that matchConditions save. */
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

/** Aligns one row of the parity table below its headings. Rows are printed singly, because all take minutes. */
export const alignParityTableRow = (cells: (string | number)[], longestName: number): string =>
  cells
    .map((cell, at) =>
      at === 0 ? String(cell).padEnd(longestName) : String(cell).padStart(parityTableHeadings[at]?.length ?? 0),
    )
    .join("  ");

/**
 * Describes the known differences, the failed conditions and the first differences, with the options that repeat them.
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
  return [
    `\n${formatTable([titles, ...aligned])}`,
    ...listExceptions(results).map((list) => `\n${list}\n`),
    ...results.flatMap(({ rule, outcomes, differences }) =>
      [...differences, ...(outcomes?.differences ?? [])].map((difference) => describeCase(rule, difference)),
    ),
  ].join("");
};

const caseHeadings = ["rule", "cases", "as stated", "not receivable", "as upstream", "outcomes"];

const buildCaseRow = ({ rule, cases, asSaid, notReceivable, beside, outcomes }: RuleCaseResults): string[] => [
  rule,
  ...[cases, asSaid, notReceivable.length].map(String),
  beside ? String(beside.equal + sumCounts(beside.known)) : "-",
  outcomes ? String(outcomes.asSaid) : "-",
];

const describeCase = (rule: string, { name, from, diff }: CaseDifference) => {
  const expected = from === "case" ? "what the case states" : "upstream";
  return `\n${rule}, "${name}": the API server's answer (+) differs from ${expected} (-)\n${diff}\n`;
};

/** Returns two lists with titles: cases that can't be sent as they are, and cases that are not sent to a plugin. */
const listExceptions = (results: RuleCaseResults[]): string[] => {
  const describe = (rule: string, cases: RealServerCaseResults["notReceivable"] = []) =>
    cases.map(({ name, reason }) => `- ${rule}, "${name}": ${reason}`);
  const notReceivable = results.flatMap(({ rule, notReceivable }) => describe(rule, notReceivable));
  const leftOut = results.flatMap(({ rule, alone, beside }) => [
    ...(alone === undefined ? [] : [`- ${rule}: ${alone}`]),
    ...describe(rule, beside?.leftOut),
  ]);
  return [
    ...(notReceivable.length > 0 ? [`Not receivable:\n\n${notReceivable.join("\n")}`] : []),
    ...(leftOut.length > 0 ? [`Not sent to upstream:\n\n${leftOut.join("\n")}`] : []),
  ];
};

/** Reports whether no rule has an unexplained difference from its plugin or a case with an unexpected answer. */
export const areAsExpected = (results: RuleCaseResults[]): boolean =>
  results.every(({ differences, outcomes }) => differences.length === 0 && !outcomes?.differences.length);

const [begin, casesBegin, end] = [
  "<!-- Written by npm run parity -- --write. -->",
  "<!-- Written by npm run parity -- --requests 0 --write. -->",
  "<!-- End of parity. -->",
];

/** The results of all ports and cases with one minor of Kubernetes. The fields are part of the JSON output. */
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
}

/**
 * Returns the text of functions/README.md with this parity report, which replaces an earlier one or goes to the end. The
 * numbers of calls and of cases are those of the last minor. Without requests, only the table of cases is replaced.
 */
export const insertParityReport = (page: string, { runs, requests, seed }: ParityRuns): string => {
  const [before = "", rest] = page.split(begin);
  const [report = "", after = "\n"] = rest?.split(end) ?? [];
  const ports = requests > 0 ? describePorts({ runs, requests, seed }) : (report.split(casesBegin)[0] ?? "");
  const parts = [before, begin, ports, casesBegin, describeCasesOfEveryRule(runs)];
  return `${parts.map((part) => part.trim()).join("\n\n")}\n\n${end}${after}`;
};

const describePorts = ({ runs, requests, seed }: ParityRuns): string => {
  // The rules of the newest minor have their order there, and those that only older minors have come last.
  const found = runs.toReversed().flatMap(({ rules }) => rules);
  const reasons = listReasons(found).map((reason) => {
    const rules = new Set(found.filter(({ known }) => reason in known).map(({ rule }) => rule));
    return `- ${reason} (${[...rules].join(", ")})`;
  });
  const versions = runs.map(({ kubernetes }) => kubernetes);
  const newest = runs.at(-1);
  const rows = [...new Set(found.map(({ rule }) => rule))].map((name) => [
    name,
    ...runs.map(({ rules }) => {
      const result = rules.find(({ rule }) => rule === name);
      return result ? [result.equal, sumCounts(result.known), result.unexplained].join(" / ") : "-";
    }),
    ...buildCallCells(newest?.rules.find(({ rule }) => rule === name)),
  ]);
  const tested = versions.map((version) => version.slice(1).replace(/\.\d+$/, ""));
  const command = `npm run parity -- --minor ${tested.join(",")} --requests ${requests} --seed ${seed} --write`;
  return [
    "## Parity",
    `The same ${requests} generated requests for each rule were sent to kube-apiserver with the compiled-in plugin, and to one\nwithout it that calls the rule:\n\n    ${command}\n\nA cell has the numbers of equal answers, of answers with a known difference, and of answers with an unexplained one; "-"\nmeans that this minor has no such plugin. Status, object, message, details, warnings and audit annotations are compared.\nThe last columns are about ${versions.at(-1)}: how often the rule was called, how often it refused or changed something, how\noften it was called without its matchConditions, and the share of calls that these save.`,
    toMarkdown(["rule", ...versions, ...columns], rows),
    ...(reasons.length > 0 ? [`Known differences:\n\n${reasons.join("\n")}`] : []),
  ].join("\n\n");
};

const describeCasesOfEveryRule = (runs: MinorParityResults[]): string => {
  const { kubernetes, cases = [] } = runs.at(-1) ?? {};
  return [
    `The cases of every rule, sent to kube-apiserver ${kubernetes}: how many have the outcome that they state, how many no\nAPI server can receive, how many the compiled-in plugin answers alike (of those with its settings), and how many recorded\noutcomes of a removed plugin are unchanged.`,
    toMarkdown(caseHeadings, cases.map(buildCaseRow)),
    ...listExceptions(cases),
  ].join("\n\n");
};

const columns = ["calls", "acted", "calls without conditions", "saved"];

const toMarkdown = (headings: string[], rows: (string | number)[][]) =>
  [headings, headings.map((_, at) => (at === 0 ? "---" : "---:")), ...rows]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n");
