import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc, { type Arbitrary, type IAsyncProperty } from "fast-check";
import { writeIntegerExactly } from "#lib/exact-json.ts";
import { parseJson } from "#lib/json.ts";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { listContainers } from "#lib/objects/pod.ts";
import type { AdmissionRequest, Status } from "#lib/review.ts";
import { getVariants, type RuleVariant, rule, selectPhase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import type { GatewayHandler } from "../../infra/serve/gateway.ts";
import type { ControlPlaneBinaries } from "../control-plane/binaries.ts";
import type { TestCluster } from "../control-plane/cluster.ts";
import {
  type ComparableServerAnswer,
  type ComparedRule,
  comparePluginAndPortAnswers,
  formatAnswerDiff,
  type ParityComparisonResult,
  toComparable,
} from "./compare.ts";
import { scenarioGenerators } from "./generators/scenarios.ts";
import { buildSequences } from "./generators/sequences.ts";
import { toServedVersions } from "./generators/served-versions.ts";
import { competingWebhookAnnotation, type RequestSequence } from "./generators/steps.ts";
import { type ComparisonConfig, getComparisonConfig, type PluginPort } from "./plugins.ts";
import {
  applyConfigurations,
  buildTestRule,
  extendWebhookTimeoutsForTests,
  includeVitalRequests,
  serveTestRules,
  type TestRuleServerOptions,
} from "./rule-server.ts";
import { type ConfigurationUseDetector, openScriptedWebhookEndpoints } from "./scripted-endpoints.ts";
import {
  deleteWithFinalizers,
  type GetClient,
  type RequestWithAnswer,
  sendSequence,
  sequenceLabel,
} from "./sequence-sender.ts";
import { bootParityServerPair } from "./server-pair.ts";

/** The options of one comparison of a plugin with its rule. */
export interface ParityOptions {
  /** The number of requests that are sent to each of the two API servers. */
  requests: number;
  /** The seed of the random generator: the same seed generates the same requests. */
  seed: number;
  /** Settings of the rule that override those with which it is expected to answer as the plugin. */
  settings?: object;
}

/** A difference without a known reason. */
export interface ParityDifference {
  /** True if the difference appeared on the API server that calls the rule without its matchConditions. */
  withoutConditions: boolean;
  /** Whether the difference appeared again when the requests were repeated. */
  recurs: boolean;
  /** The requests that lead to the difference; only the last one is answered differently by plugin and rule. */
  calls: string[];
  /** Lines of the plugin's answer begin with `-`, lines of the rule's with `+`. */
  diff: string;
}

/** The result of the comparison of one rule. The fields are part of the JSON output. */
export interface PortParityResult {
  rule: string;
  plugin: string;
  requests: number;
  equal: number;
  /** The number of requests with each known difference. */
  known: Record<string, number>;
  /** The sum of the differences without a known reason and of the matchConditions that couldn't be evaluated. */
  unexplained: number;
  /** The webhooks with a matchCondition that could not be evaluated, and how often, from the API server's metrics. */
  failedConditions: Record<string, number>;
  /**
   * The numbers of calls of the rule. `made`: with its matchConditions. `acted`: those of them that refused or changed
   * an object. `withoutConditions`: when the same requests were repeated without matchConditions.
   */
  calls: { made: number; acted: number; withoutConditions: number };
  differences: ParityDifference[];
}

/** The number of sequences that run in parallel on each server. */
const concurrency = 8;
/** The most runs to shrink a sequence. (With a time limit, the result would depend on the machine's speed.) */
const maxShrinkingRuns = 300;
/** How many differences without a known reason are shrunk and shown. Further ones mostly have the same cause. */
const maxShownDifferences = 3;

/**
 * Sends the same requests to an API server with the plugin and to an API server that calls the rule, and compares the
 * answers.
 */
export const measureParity = async (
  port: PluginPort,
  binaries: ControlPlaneBinaries,
  options: ParityOptions,
): Promise<PortParityResult> => {
  const { upstreamPlugin } = port.rule;
  await using stack = new AsyncDisposableStack();
  const { path: folder } = stack.use(await mkdtempDisposable(join(tmpdir(), "postern-parity-")));
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const { minor } = binaries;
  const generatorOptions = buildGeneratorOptions(getComparisonConfig(upstreamPlugin.plugin, minor));
  const generator = buildSequences(listMatches(port), generatorOptions)
    .map((sequence) => toServedVersions(sequence, minor))
    .filter((sequence) => sequence !== undefined);
  const sequences = sample(generator, options).map((sequence, index) => ({ sequence, name: `s${index}` }));
  // A plugin that refuses all objects is turned on only after some objects were created.
  const isLate = refusingPlugins.has(upstreamPlugin.plugin);
  const fill = (as: GetClient) => sendAll(sequences.filter(isCreatedBefore).map(toCreation), as);
  const late = isLate ? { enable: [upstreamPlugin.plugin], fill } : undefined;
  const pair = await bootParityServerPair(port, binaries, { folder, stack }, late);
  const { upstream, ours, openCapabilities } = pair;
  const settings = mergeWithDefaults(pair.settings, options.settings);
  const { detector, stop } = await openScriptedWebhookEndpoints(certificate);
  stack.defer(stop);
  const denials = createDenialCollector();
  const open = async (ports: PluginPort[]) => {
    const host = { certificate, openCapabilities: openCapabilities(), wrapHandler: denials.observe };
    const served = await serve(ports, host, { settings, minor }, detector);
    stack.defer(served.stop);
    return served;
  };
  // Both servers also call `competingRule`, which changes pods after the plugin or the rule.
  const competingOnly = await open([]);
  const withRule = await open([port]);
  const withoutConditions = await open([{ ...port, rule: deleteConditions(port.rule) }]);

  const compared = { rule: port.name, minor };
  const sendToOurs = (sequences: NamedSequence[]) => sendAndClear(sequences, ours, denials.take);
  const property = createProperty(generator, { compared, upstream, sendToOurs });
  if (isLate) await fill(ours.as);
  const outcome: PortParityResult = {
    rule: port.name,
    plugin: upstreamPlugin.plugin,
    requests: options.requests,
    equal: 0,
    known: {},
    unexplained: 0,
    failedConditions: {},
    calls: { made: 0, acted: 0, withoutConditions: 0 },
    differences: [],
  };

  // No webhook is registered in a server whose plugin refuses everything: it would refuse the webhook configuration.
  await Promise.all([isLate || competingOnly.callFrom(upstream), withRule.callFrom(ours)]);
  const [wanted, actual] = await Promise.all([sendAndClear(sequences, upstream), sendToOurs(sequences)]);
  outcome.calls.made = withRule.calls().length;
  outcome.calls.acted = withRule.calls().filter(({ refused, operations }) => refused || operations !== 0).length;
  await withoutConditions.callFrom(ours);
  const actualWithoutConditions = await sendToOurs(sequences);
  outcome.calls.withoutConditions = withoutConditions.calls().length;
  const compare = (answers: RequestWithAnswer[][], index: number) => {
    const { name = "" } = sequences[index] ?? {};
    return compareTurns(compared, wanted[index] ?? [], answers[index] ?? [], name, actualWithoutConditions[index]);
  };
  const verdicts = sequences.map((_, index) => compare(actual, index));
  for (const verdict of verdicts.flat())
    if (verdict.verdict === "equal") outcome.equal += 1;
    else if (verdict.verdict === "known") outcome.known[verdict.reason] = (outcome.known[verdict.reason] ?? 0) + 1;
    else outcome.unexplained += 1;
  // A sequence that differs with matchConditions isn't reported a second time for the run without matchConditions.
  const verdictsWithoutConditions = sequences.map((_, index) =>
    verdicts[index]?.some(isDifferent) ? [] : compare(actualWithoutConditions, index),
  );
  outcome.unexplained += verdictsWithoutConditions.flat().filter(isDifferent).length;
  const addDifferences = async (served: typeof withRule, found: StepVerdict[][]) => {
    if (!found.flat().some(isDifferent)) return;
    await served.callFrom(ours);
    outcome.differences.push(...(await explain(found, property, options, served === withoutConditions)));
  };
  await addDifferences(withRule, verdicts);
  await addDifferences(withoutConditions, verdictsWithoutConditions);
  // For generated policies, failures are not counted: their conditions may fail.
  if (!getComparisonConfig(upstreamPlugin.plugin, minor).policies)
    outcome.failedConditions = await countFailedConditions(ours);
  for (const count of Object.values(outcome.failedConditions)) outcome.unexplained += count;
  return outcome;
};

/** Returns the rule without its matchConditions. */
const deleteConditions = ({ matchConditions: _, variants, ...rule }: PluginPort["rule"]): PluginPort["rule"] => {
  if (variants === undefined) return rule;
  const deleteVariantConditions = ({ matchConditions: _, ...variant }: RuleVariant<object>) => variant;
  return {
    ...rule,
    variants: (settings: object) => getVariants({ ...rule, variants }, settings)?.map(deleteVariantConditions) ?? [],
  };
};

/**
 * Returns the options of the generator: each namespace as often as its weight says, and the scenarios. `own` stands for
 * a new namespace of each sequence, which the generator calls undefined.
 */
const buildGeneratorOptions = ({ namespaces = {}, scenarios: names = [] }: ComparisonConfig) => ({
  namespaces: Object.entries(namespaces).flatMap(([name, weight]) =>
    Array<string | undefined>(weight).fill(name === "own" ? undefined : name),
  ),
  scenarios: names.map((name) => scenarioGenerators[name]),
});

/**
 * Reads from the API server's metrics how often the evaluation of matchConditions failed, by webhook. After such a
 * failure, the request is refused or the webhook skipped, which depends on the failurePolicy.
 */
const countFailedConditions = async ({ admin }: TestCluster): Promise<Record<string, number>> => {
  const { body } = await admin({ method: "GET", path: "/metrics" });
  const lines = String(body.text).matchAll(
    /^apiserver_admission_match_condition_evaluation_errors_total\{.*name="([^"]+)".*\} (\d+)$/gm,
  );
  const counts: Record<string, number> = {};
  // Each webhook has a line for each phase and operation in the metrics, so the counts are added.
  for (const [, webhook = "", count] of lines) counts[webhook] = (counts[webhook] ?? 0) + Number(count);
  return counts;
};

/** Plugins that refuse all creations. For them, each second sequence creates its object before the plugin is on. */
const refusingPlugins = new Set(["AlwaysDeny"]);
const isCreatedBefore = (_: NamedSequence, index: number) => index % 2 === 0;
const toCreation = ({ sequence, name }: NamedSequence): NamedSequence => {
  const steps = sequence.steps.slice(0, 1).map((step) => ({ ...step, dryRun: false }));
  return { name, sequence: { ...sequence, generateName: false, steps } };
};

/**
 * A rule that stands for a webhook of another vendor. It is called after all rules, and sets imagePullPolicy to Never.
 */
export const competingRule = buildTestRule(
  "spoiler",
  rule({
    summary: "Undoes the changes of a rule in pods with a certain annotation.",
    match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
    matchConditions: { "is-wanted": `"${competingWebhookAnnotation}" in object.?metadata.?annotations.orValue({})` },
    mutate(pod: Pod) {
      for (const { container } of listContainers(pod)) container.imagePullPolicy = "Never";
    },
  }),
);

/** Serves these rules with settings, and `competingRule`, which changes pods, too. */
const serve = async (
  ports: PluginPort[],
  host: TestRuleServerOptions,
  { settings, minor }: { settings: object; minor: string },
  detector: ConfigurationUseDetector,
) => {
  const setups = ports.map(({ name, rule }) => {
    // A rule with `exemptionRequired` must exempt a user. This one sends no request in the comparison.
    const exempt = { namespaces: [], ...(rule.exemptionRequired && { users: ["nobody"] }) };
    return [name, { failurePolicy: "Fail", exempt, settings }];
  });
  const rules = { ...Object.fromEntries(setups), [competingRule.name]: {} };
  const yaml = JSON.stringify({ rules, clusters: { local: { kubernetes: minor } } });
  const { reports, manifests, stop } = await serveTestRules([...ports, competingRule], yaml, host);
  const names = new Set(ports.map(({ name }) => name));
  let start = 0;
  return {
    stop,
    /**
     * Returns the log reports of the rules' calls since their webhooks were last registered. Only requests by the users
     * of generated requests count, not the API server's own.
     */
    calls: () =>
      reports
        .slice(start)
        .filter(({ rule, request }) => names.has(rule) && users.has(request?.userInfo.username ?? "")),
    /** Registers the webhooks of these rules in a cluster, in place of the webhooks that were registered before. */
    callFrom: async ({ admin }: TestCluster) => {
      await applyConfigurations(admin, extendWebhookTimeoutsForTests(includeVitalRequests(manifests())), detector);
      start = reports.length;
    },
  };
};

const users = new Set<string>(["admin", "jane", "system:node:n1"]);

interface NamedSequence {
  sequence: RequestSequence;
  name: string;
}

/**
 * Collects the denials of all webhook entries, because the API server's answer contains only one of them. They are kept
 * by the sequence of generated requests, whose name is a label of the object.
 */
const createDenialCollector = () => {
  const collected = new Map<string, Status[]>();
  return {
    observe:
      (_: string, handler: GatewayHandler): GatewayHandler =>
      async (received) => {
        const answer = await handler(received);
        const texts = [received.body.toString(), answer.body];
        const [{ request }, { response }] = texts.map((text) => parseJson(text) ?? {}) as [
          { request?: AdmissionRequest },
          { response?: { status?: Status } },
        ];
        const sequence = [request?.object, request?.oldObject]
          .map((object) => Object(Object(Object(object).metadata).labels)[sequenceLabel])
          .find((name) => typeof name === "string");
        if (sequence !== undefined && response?.status)
          collected.set(sequence, [...(collected.get(sequence) ?? []), response.status]);
        return answer;
      },
    take: (sequence: string): readonly Status[] => {
      const taken = collected.get(sequence) ?? [];
      collected.delete(sequence);
      return taken;
    },
  };
};

/**
 * Sends all sequences to one server, adds the audit annotations to the answers, and deletes the remaining objects.
 * `takeDenials` returns the refusals that webhook entries sent for a sequence since its last call.
 */
const sendAndClear = async (
  sequences: NamedSequence[],
  { as, readAuditAnnotations }: TestCluster,
  takeDenials?: (sequence: string) => readonly Status[],
): Promise<RequestWithAnswer[][]> => {
  const { turnsBySequence, remainingObjectPaths } = await sendAll(sequences, as, takeDenials);
  const logged = turnsBySequence.flat().flatMap((turn) => {
    const { auditId } = turn.answer;
    return auditId === undefined || turn.call.method === "GET" ? [] : [{ turn, auditId }];
  });
  const annotations = await readAuditAnnotations(logged.map(({ auditId }) => auditId));
  for (const { turn, auditId } of logged) turn.audit = annotations.get(auditId) ?? {};
  for (const path of remainingObjectPaths) await deleteWithFinalizers(path, as);
  return turnsBySequence;
};

/**
 * Sends all sequences to one server, several in parallel. `takeDenials` returns the refusals that webhook entries sent
 * for a sequence since its last call; they are added to the answers.
 */
const sendAll = async (
  sequences: NamedSequence[],
  as: GetClient,
  takeDenials?: (sequence: string) => readonly Status[],
) => {
  const turnsBySequence: RequestWithAnswer[][] = [];
  const remainingObjectPaths: string[] = [];
  const unsent = sequences.entries();
  const sendSequences = async () => {
    for (const [index, { sequence, name }] of unsent) {
      const outcome = await sendSequence(sequence, name, as, takeDenials);
      turnsBySequence[index] = outcome.turns;
      remainingObjectPaths.push(...outcome.remainingObjectPaths);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, sendSequences));
  return { turnsBySequence, remainingObjectPaths };
};

type StepVerdict = ParityComparisonResult & {
  /** For a difference: the requests of the sequence up to this one, with the plugin's answers. */
  turns?: RequestWithAnswer[];
  wanted?: ComparableServerAnswer;
  actual?: ComparableServerAnswer;
};
const isDifferent = ({ verdict }: StepVerdict) => verdict === "different";

/**
 * Compares the answers of both servers to a sequence's requests. If several webhook entries deny a request, the client
 * gets any one of the denials, but the test's webhooks note all of them. They are read from `withAllDenials`, a run of
 * the same requests without matchConditions, in which the API server skipped no entry.
 */
const compareTurns = (
  compared: ComparedRule,
  wanted: RequestWithAnswer[],
  actual: RequestWithAnswer[],
  sequenceName: string,
  withAllDenials = actual,
): StepVerdict[] => {
  const earlierActual: ComparableServerAnswer[] = [];
  const earlierWanted: ComparableServerAnswer[] = [];
  return wanted.map((turn, index) => {
    const wantedAnswer = toComparable(turn, sequenceName);
    const actualAnswer = toComparable(actual[index] ?? turn, sequenceName);
    const denials = listDenials(withAllDenials[index] ?? turn, sequenceName);
    const comparison = comparePluginAndPortAnswers(compared, wantedAnswer, actualAnswer, {
      earlierActual,
      earlierWanted,
      denials,
    });
    earlierActual.push(actualAnswer);
    earlierWanted.push(wantedAnswer);
    if (comparison.verdict !== "different") return comparison;
    return { ...comparison, turns: wanted.slice(0, index + 1), wanted: wantedAnswer, actual: actualAnswer };
  });
};

/**
 * Returns the answers that a client may get if several webhook entries deny a request: one for each entry. Generated
 * names, which begin with `sequenceName`, have `?` in place of their random ends.
 */
const listDenials = (turn: RequestWithAnswer, sequenceName: string): ComparableServerAnswer[] =>
  (turn.denials ?? []).map((status) => {
    const body = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", ...status };
    return toComparable({ ...turn, answer: { ...turn.answer, code: status.code, body } }, sequenceName);
  });

/**
 * A property for fast-check, which runs it again and again to shorten a sequence. Only the next `runs.left` runs send
 * requests; the caller sets this number. Further runs pass at once, so that fast-check ends.
 */
interface Property {
  property: IAsyncProperty<[RequestSequence]>;
  runs: { left: number };
}

const listMatches = ({ phases, rule }: PluginPort) =>
  phases.flatMap((phase) => selectPhase(rule.match, phase, rule.settings ?? {}) ?? []);

/**
 * Creates a fast-check property: the plugin and the rule have equal answers. Each run uses another name for objects.
 */
const createProperty = (
  sequence: Arbitrary<RequestSequence>,
  servers: {
    compared: ComparedRule;
    upstream: TestCluster;
    sendToOurs(sequences: NamedSequence[]): Promise<RequestWithAnswer[][]>;
  },
): Property => {
  let count = 0;
  // The caller sets how many runs may send their sequence.
  const runs = { left: 0 };
  const property = fc.asyncProperty(sequence, async (sequence) => {
    // A sequence that isn't sent counts as equal, so that fast-check stops shortening it.
    if (runs.left-- <= 0) return;
    const name = `t${count++}`;
    const sequences = [{ sequence, name }];
    const [wanted, actual] = await Promise.all([
      sendAndClear(sequences, servers.upstream),
      servers.sendToOurs(sequences),
    ]);
    const difference = compareTurns(servers.compared, wanted[0] ?? [], actual[0] ?? [], name).find(isDifferent);
    if (difference) throw new DifferenceError(difference);
  });
  return { property, runs };
};

class DifferenceError extends Error {
  readonly verdict: StepVerdict;
  constructor(verdict: StepVerdict) {
    super("the answers differ");
    this.verdict = verdict;
  }
}

/** Generates sequences with this number of requests in total. The last sequence may be shortened. */
const sample = (arbitrary: Arbitrary<RequestSequence>, { requests, seed }: ParityOptions): RequestSequence[] => {
  let left = requests;
  return fc.sample(arbitrary, { seed, numRuns: requests }).flatMap((sequence) => {
    const steps = sequence.steps.slice(0, Math.max(0, left));
    left -= steps.length;
    return steps.length > 0 ? [{ ...sequence, steps }] : [];
  });
};

/** Returns the first few differences. Shortens the sequence of each as far as the answers still differ. */
const explain = async (
  verdicts: StepVerdict[][],
  { property, runs }: Property,
  { seed }: ParityOptions,
  withoutConditions: boolean,
): Promise<ParityDifference[]> => {
  const found = verdicts.flatMap((ofSequence, index) => {
    const verdict = ofSequence.find(isDifferent);
    return verdict ? [{ verdict, index }] : [];
  });
  const differences: ParityDifference[] = [];
  for (const { verdict, index } of found.slice(0, maxShownDifferences)) {
    runs.left = maxShrinkingRuns;
    // fast-check generates the sequence with this index again, and shortens it.
    const { errorInstance } = await fc.check(property, { seed, path: String(index), numRuns: 1 });
    const recurs = errorInstance instanceof DifferenceError;
    if (!recurs && errorInstance) throw errorInstance;
    differences.push(toDifference(recurs ? errorInstance.verdict : verdict, { withoutConditions, recurs }));
  }
  return differences;
};

/**
 * Describes a difference for the report. `found` says whether it appeared when the rule was called without
 * matchConditions, and whether it appeared again when the requests were repeated.
 */
const toDifference = (
  verdict: StepVerdict,
  found: Pick<ParityDifference, "withoutConditions" | "recurs">,
): ParityDifference => {
  const { turns = [], wanted, actual } = verdict;
  const calls = turns.map(({ call: { method, path, body, contentType, user } }) =>
    [method, path, `as ${user}`, ...(contentType ? [`(${contentType})`] : []), formatBody(body)].join(" ").trim(),
  );
  return { ...found, calls, diff: wanted && actual ? formatAnswerDiff(wanted, actual) : "" };
};

/** Formats a body without the fields that the server adds to each object. */
const formatBody = (body: unknown) =>
  JSON.stringify(body, (key, value) => (serverFields.has(key) ? undefined : writeIntegerExactly(key, value))) ?? "";
const serverFields = new Set(["managedFields", "uid", "resourceVersion", "creationTimestamp"]);
