import { table } from "../cli/command.ts";
import type { Hearing, RuleHearing } from "./cases.ts";

const headings = ["rule", "cases", "as said", "not receivable", "as upstream", "outcomes"];

const rowOf = ({ rule, cases, asSaid, notReceivable, beside, outcomes }: RuleHearing): string[] => [
  rule,
  ...[cases, asSaid, notReceivable.length].map(String),
  beside ? String(beside.equal + Object.values(beside.known).reduce((one, other) => one + other, 0)) : "-",
  outcomes ? String(outcomes.asSaid) : "-",
];

/** What became of the rules' cases: a table, those that can't be, and those that aren't so. */
export const hearingsTable = (hearings: RuleHearing[]): string => {
  const titles = headings.map((title) => title.toUpperCase());
  const aligned = hearings.map((one) =>
    rowOf(one).map((cell, at) => (at > 0 ? cell.padStart(titles[at]?.length ?? 0) : cell)),
  );
  const impossible = notReceivable(hearings);
  const apart = leftOut(hearings);
  return [
    `\n${table([titles, ...aligned])}`,
    ...(impossible.length > 0 ? [`\nNot receivable:\n\n${impossible.join("\n")}\n`] : []),
    ...(apart.length > 0 ? [`\nNot asked beside upstream:\n\n${apart.join("\n")}\n`] : []),
    ...hearings.flatMap(({ rule, outcomes, ...hearing }) => [
      ...dissents(rule, hearing),
      ...(outcomes ? dissents(rule, outcomes) : []),
    ]),
  ].join("");
};

const dissents = (rule: string, { differences }: Pick<Hearing, "differences">) =>
  differences.map(({ name, from, diff }) => {
    const expected = from === "case" ? "what the case says" : "upstream";
    return `\n${rule}, "${name}": the API server's answer (+) differs from ${expected} (-)\n${diff}\n`;
  });

const notReceivable = (hearings: RuleHearing[]) =>
  hearings.flatMap(({ rule, notReceivable }) =>
    notReceivable.map(({ name, reason }) => `- ${rule}, "${name}": ${reason}`),
  );

/** What no plugin was asked, or could be asked as it stands. */
const leftOut = (hearings: RuleHearing[]) =>
  hearings.flatMap(({ rule, alone, beside }) => [
    ...(alone === undefined ? [] : [`- ${rule}: ${alone}`]),
    ...(beside?.leftOut ?? []).map(({ name, reason }) => `- ${rule}, "${name}": ${reason}`),
  ]);

/** The same for functions/README.md. */
export const hearingsSection = (hearings: RuleHearing[]): string =>
  [
    `Every rule's cases, sent to the same API server: how many it answers as they say; how many no API server can receive as\nthey are; how many the compiled-in plugin answers alike, of those with its settings; and how many outcomes of a plugin\nthat Kubernetes no longer has are as they were.`,
    [headings, headings.map((_, at) => (at === 0 ? "---" : "---:")), ...hearings.map(rowOf)]
      .map((cells) => `| ${cells.join(" | ")} |`)
      .join("\n"),
    ...(notReceivable(hearings).length > 0 ? [`Not receivable:\n\n${notReceivable(hearings).join("\n")}`] : []),
    ...(leftOut(hearings).length > 0 ? [`Not asked beside upstream:\n\n${leftOut(hearings).join("\n")}`] : []),
  ].join("\n\n");

export const allAsSaid = (hearings: RuleHearing[]): boolean =>
  hearings.every(({ differences, outcomes }) => differences.length === 0 && !outcomes?.differences.length);
