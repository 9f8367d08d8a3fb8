import { exactJson } from "#lib/exact-json.ts";
import { isMap, toMap } from "#lib/json.ts";
import type { RecordedReview } from "#lib/recording/recorder.ts";
import type { Recording } from "#lib/recording/recording.ts";
import type { Phase } from "#lib/rule.ts";
import { toSentence } from "../cli/complaint.ts";
import { computeDiffLines } from "../diff/difference.ts";
import { formatYamlLines } from "../diff/yaml-lines.ts";
import type { LoadedHandlers } from "../serve/handlers.ts";
import { buildRuleWebhookEntries, joinCelExpressionLines, listEntryConditions } from "../webhooks/entry.ts";
import { buildGroupWebhookEntry } from "../webhooks/groups.ts";
import type { EvaluationDetails, ReviewDetails } from "./messages.ts";
import type { KeptReview } from "./reviews.ts";

/** Describes a review from its recording. Each rule is evaluated again, with placeholders instead of free texts. */
export const describeReview = async (review: KeptReview, loaded: LoadedHandlers): Promise<ReviewDetails> => {
  const evaluations: EvaluationDetails[] = [];
  const sentences = review.failure === undefined ? [] : [review.failure];
  if (review.failure === undefined && review.evaluations.length === 0)
    sentences.push(
      "Nothing more is known of this review: it came before the page was open, its rule is off, or an exception let it through.",
    );
  for (const evaluation of review.evaluations)
    try {
      evaluations.push(await describeEvaluation(evaluation, loaded));
    } catch (error) {
      sentences.push(`${evaluation.origin.rule} is not shown: ${toSentence(error)}`);
    }
  return { row: review.row, evaluations, sentences };
};

/** Returns what the console shows of a rule's answer to a review, with the review as a case. */
const describeEvaluation = async ({ line: formatRecording, origin, mode }: RecordedReview, loaded: LoadedHandlers) => {
  const { rule, cluster } = origin;
  const unredactedPaths = loaded.config.clusters.get(cluster)?.rules.get(rule)?.record?.keep;
  // A recording is one line: an element of a YAML list, "- " and a JSON object. Free texts in it are redacted.
  const recording = exactJson.parse((await formatRecording(unredactedPaths)).slice("- ".length));
  const { recorded, ...entry } = withoutManagedFields(recording) as Recording;
  const { mutate, validate, becomes, refused, warnings = [], audit = {} } = entry;
  const phase: Phase = mutate === undefined ? "validate" : "mutate";
  return {
    rule,
    phase,
    mode,
    title: entry.name,
    lines: computeDiffLines(mutate ?? validate, becomes === undefined ? [] : [{ rule, after: becomes }]),
    refusal: refused,
    warnings,
    audit,
    conditions: listConditions(loaded, { rule, cluster, phase, variant: entry.variant }),
    caseText: `${formatYamlLines([entry]).join("\n")}\n`,
    isRedacted: recorded.redacted === true,
  };
};

/** Returns a copy without metadata.managedFields. They are long, and users don't need them to understand the object. */
const withoutManagedFields = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(withoutManagedFields);
  if (!isMap(value)) return value;
  const { managedFields: _, ...metadata } = toMap(value.metadata);
  const withoutFields = isMap(value.metadata) ? { ...value, metadata } : value;
  return Object.fromEntries(Object.entries(withoutFields).map(([key, member]) => [key, withoutManagedFields(member)]));
};

/** Returns the matchConditions of the webhook of a rule or its group. Exemptions are also matchConditions. */
const listConditions = (
  { config, served }: LoadedHandlers,
  { rule, cluster, phase, variant }: { rule: string; cluster: string; phase: Phase; variant: string | undefined },
): Record<string, string> => {
  const catalogueRule = served.flatMap((each) => each.members ?? [each]).find(({ name }) => name === rule);
  const clusterConfig = config.clusters.get(cluster);
  const setup = clusterConfig?.rules.get(rule) ?? config.rules.get(rule);
  if (catalogueRule === undefined || setup === undefined) return {};
  const group = config.groups.find(({ members }) => phase === "mutate" && members.includes(catalogueRule));
  // The gateway doesn't know whether the cluster's entries are hardened: whether rules that guard security have the
  // failurePolicy Fail there. Conditions of hardened entries may differ from those listed here.
  const isHardened = false;
  const entries = group ? [] : buildRuleWebhookEntries(catalogueRule, phase, setup, isHardened);
  const entry = group
    ? clusterConfig && buildGroupWebhookEntry(group, clusterConfig, isHardened)
    : entries.find((found) => found.variant === variant)?.entry;
  const conditions = entry ? listEntryConditions(entry) : [];
  return Object.fromEntries(conditions.map(([name, cel]) => [name, joinCelExpressionLines(cel)]));
};
