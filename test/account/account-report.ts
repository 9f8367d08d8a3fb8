import { readFile } from "node:fs/promises";
import { sumCosts } from "./budget.ts";
import { facts as allFacts } from "./facts/facts.ts";
import type { LatencyRow } from "./latency.ts";
import type { Suite } from "./suite.ts";

/** The results that are known at the end of a run. */
export interface SuiteEnd {
  latencies: LatencyRow[];
  /** The resources that are still in the account; undefined if they could not be read. */
  leftovers: string[] | undefined;
}

/** Reports whether all steps succeeded, all facts within the account's quotas were seen, and no resource is left. */
export const isGood = ({ facts, steps }: Suite, { leftovers }: SuiteEnd): boolean =>
  leftovers?.length === 0 &&
  steps.every(({ isDone }) => isDone) &&
  [...facts.values()].every(({ outcome, exceedsQuotas }) => outcome === "seen" || exceedsQuotas === true);

/** Returns the report of a run in Markdown. */
export const formatReport = async (suite: Suite, end: SuiteEnd): Promise<string> => {
  const { name, region, start, steps, facts, http, url } = suite;
  const minutes = (Date.now() - start) / 60_000;
  const { leftovers } = end;
  const count = (outcome: string) => [...facts.values()].filter((fact) => fact.outcome === outcome).length;
  const sent = [http, url].map(({ traffic }) => traffic.sent);
  const versions = await readVersions();
  return [
    "# Postern on an AWS account",
    "",
    `Made by \`npm run test:account\`; [docs/background/aws-facts.md](docs/background/aws-facts.md) has the facts.`,
    "",
    ...formatTable(
      ["", ""],
      [
        ["date", new Date(start).toISOString()],
        ["region", region],
        ["stages", `${name}, ${name}-url`],
        ["versions", versions],
        ["duration", `${minutes.toFixed(1)} minutes`],
        ["cost", `at most $${sumCosts().toFixed(2)}`],
        [
          "reviews",
          sent
            .map((requests, index) => `${requests.length} (${index === 0 ? "HTTP API" : "function URLs"})`)
            .join(", "),
        ],
        ["facts", `${count("seen")} seen, ${count("differs")} differ, ${count("not seen")} not seen`],
        ["left in the account", leftovers === undefined ? "unknown" : leftovers.length === 0 ? "nothing" : "see below"],
      ],
    ),
    "",
    "## Facts",
    "",
    ...formatTable(
      ["fact", "", "what was seen"],
      allFacts.flatMap(({ id }) => {
        const fact = facts.get(id);
        return fact ? [[id, fact.outcome === "seen" ? fact.outcome : `**${fact.outcome}**`, fact.sentence]] : [];
      }),
    ),
    "",
    "## Steps",
    "",
    ...formatTable(
      ["step", "", "seconds", "result"],
      steps.map(({ name: step, isDone, seconds, sentence }) => [
        step,
        isDone ? "done" : "**failed**",
        seconds.toFixed(0),
        sentence,
      ]),
    ),
    "",
    "## Latency",
    "",
    ...formatTable(
      ["stage", "", "reviews", "p50 from here", "p99 from here", "p50 as logged", "p99 as logged"],
      end.latencies.map(({ stage, kind, reviews, here, logged }) => [
        stage,
        kind,
        String(reviews),
        ...[here.p50, here.p99, logged.p50, logged.p99].map(formatMilliseconds),
      ]),
    ),
    ...(leftovers === undefined || leftovers.length > 0
      ? ["", "## Left in the account", "", ...(leftovers ?? ["It could not be read."]).map((line) => `- ${line}`)]
      : []),
    "",
  ].join("\n");
};

const readVersions = async (): Promise<string> => {
  const { version } = JSON.parse(await readFile(new URL("../../package.json", import.meta.url), "utf8"));
  return `Postern ${version}, Node ${process.versions.node} here, nodejs24.x in Lambda`;
};

const formatMilliseconds = (milliseconds: number) =>
  Number.isNaN(milliseconds) ? "" : `${milliseconds.toFixed(1)} ms`;

const formatTable = (head: string[], rows: string[][]): string[] =>
  [head, head.map(() => "---"), ...rows].map(
    (row) => `| ${row.map((cell) => cell.replace(/\s+/g, " ").replaceAll("|", "\\|")).join(" | ")} |`,
  );
