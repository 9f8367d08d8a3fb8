import type { EndpointConfig } from "#lib/core/endpoint.ts";
import type { Phase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import type { CatalogueRule } from "../../infra/catalogue/registry.ts";
import type { WebhookUrlSigner } from "../../infra/keys/keys.ts";
import { runNodeAndParseOutput } from "./processes/processes.ts";
import { type BenchResult, summarizeRatios } from "./ratios.ts";

/** A handler to measure. It runs in a process of its own, as a Lambda function does. */
interface HandlerCase {
  rule: string;
  phase: Phase;
  /** True if the measured handler also writes its log line. */
  writesLogLine: boolean;
  /** The size of the review. */
  bytes: number;
}

/** The input of a child process of the bench that measures one rule's handler. */
export interface BenchHandlerProcessInput extends HandlerCase {
  publicKey: string;
  /** The first segment of the webhook URL's path: the cluster and its key. */
  segment: string;
  rounds: number;
}

/** The cluster name in the URLs of the measured reviews. */
export const benchCluster = "bench";

/** Returns the endpoint config of one rule in the cluster bench, as if postern.yaml turned only this rule on. */
export const buildBenchEndpointConfig = (
  { name, rule }: Pick<CatalogueRule, "name" | "rule">,
  given: object = {},
): EndpointConfig => {
  const settings = mergeWithDefaults(rule.settings ?? {}, given);
  return { rule: name, clusters: { [benchCluster]: { keyVersions: [1], mode: "enforce", settings } } };
};

/** The bytes of the reviews. */
const sizes = [5_000, 50_000, 1_000_000, 3_000_000];

/** The measured handlers: a rule that patches, without and with its log line, and a rule that only admits. */
const cases: Omit<HandlerCase, "bytes">[] = [
  { rule: "default-toleration-seconds", phase: "mutate", writesLogLine: false },
  { rule: "default-toleration-seconds", phase: "mutate", writesLogLine: true },
  { rule: "always-admit", phase: "validate", writesLogLine: false },
];

/** Returns the limit, if any, of a handler's time divided by a minimal program's. It is higher for small reviews. */
const getLimit = (writesLogLine: boolean, reviewBytes: number): number | undefined => {
  const isSmall = reviewBytes === 5_000;
  if (writesLogLine) return isSmall ? 1.7 : undefined;
  return isSmall ? 1.4 : 1.3;
};

/** Measures each handler with reviews of all sizes. */
export const measureHandlers = async (signer: WebhookUrlSigner, rounds: number): Promise<BenchResult[]> => {
  const results: BenchResult[] = [];
  for (const measuredCase of cases)
    for (const bytes of sizes) {
      const { rule, phase, writesLogLine } = measuredCase;
      const size = bytes < 1_000_000 ? `${bytes / 1_000} KB` : `${bytes / 1_000_000} MB`;
      const limit = getLimit(writesLogLine, bytes);
      results.push({
        what: `${rule}/${phase}, ${size}${writesLogLine ? ", with its line in the log" : ""}`,
        ratio: summarizeRatios(await compareHandlerWithMinimalProgram({ ...measuredCase, bytes }, signer, rounds)),
        ...(limit && { limit }),
      });
    }
  return results;
};

/**
 * Returns for each round the ratio of the handler's time to the time of a minimal program, which parses the body and
 * writes a small answer.
 */
export const compareHandlerWithMinimalProgram = async (
  handlerCase: HandlerCase,
  { publicKey, signSegment }: WebhookUrlSigner,
  rounds: number,
): Promise<number[]> => {
  const segment = signSegment(benchCluster, 1);
  const assignment: BenchHandlerProcessInput = { ...handlerCase, publicKey, segment, rounds };
  return (await runNodeAndParseOutput("handler-process.ts", {
    options: ["--expose-gc"],
    args: [JSON.stringify(assignment)],
    env: { POSTERN_KEYS: publicKey },
  })) as number[];
};
