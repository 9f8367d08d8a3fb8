import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc, { type Arbitrary } from "fast-check";
import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { listContainers } from "#lib/objects/pod.ts";
import { getVariants, type RuleVariant, rule, selectPhase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { openCertificate } from "../keys/keys.ts";
import { type ComparableAnswer, type ComparisonResult, compareAnswers, formatDiff, toComparable } from "./compare.ts";
import type { Binaries } from "./control-plane/binaries.ts";
import type { Cluster } from "./control-plane/cluster.ts";
import { scenarios } from "./generators/scenarios.ts";
import { buildSequences } from "./generators/sequences.ts";
import { competitorAnnotation, type RequestSequence } from "./generators/steps.ts";
import { type ComparisonConfig, comparisonConfigs, type Port } from "./plugins.ts";
import { applyConfigurations, extendTimeouts, type RuleHost, serveRules, toCatalogueRule } from "./rule-server.ts";
import { type Announcer, openScriptedEndpoints } from "./scripted-endpoints.ts";
import { deleteCompletely, type Exchange, type GetClient, sendSequence } from "./sequence-sender.ts";
import { openPair } from "./server-pair.ts";

/** What to find out. */
export interface ParityOptions {
  /** How many, to each server. */
  requests: number;
  /** The same seed asks the same. */
  seed: number;
  /** Other settings of the rule than those with which it is its twin's equal. */
  settings?: object;
}

/** An unexplained difference. */
export interface ParityDifference {
  /** Where the rule's matchConditions had been taken away. */
  withoutConditions: boolean;
  /** Whether the same requests showed it again. */
  recurs: boolean;
  /** The requests that show it, the last one differently answered. */
  calls: string[];
  /** What upstream says with `-`, what we say with `+`. */
  diff: string;
}

/** A rule beside its twin. */
export interface ParityResult {
  rule: string;
  plugin: string;
  requests: number;
  equal: number;
  /** How often each known difference was met. */
  known: Record<string, number>;
  /** Differences, and conditions that failed. */
  unexplained: number;
  /** The webhooks of which a matchCondition could not be evaluated, and how often, by the API server's own count. */
  failedConditions: Record<string, number>;
  /** Of the webhooks, for these requests; with the rule's matchConditions, where it refused or changed something, and without. */
  calls: { made: number; acted: number; withoutConditions: number };
  differences: ParityDifference[];
}

/** Sequences at a time, on each server. */
const concurrency = 8;
const shrinkingTime = 20_000;
/** An unexplained difference is shrunk and shown; the others are mostly the same one again. */
const maxExplained = 3;

/** Asks a server with the compiled-in plugin and one without it that calls Postern the same, and compares. */
export const measureParity = async (port: Port, binaries: Binaries, question: ParityOptions): Promise<ParityResult> => {
  const { upstreamPlugin: twin } = port.rule;
  await using stack = new AsyncDisposableStack();
  const { path: folder } = stack.use(await mkdtempDisposable(join(tmpdir(), "postern-parity-")));
  const certificate = await openCertificate(folder, "127.0.0.1");
  const sequence = buildSequences(listMatches(port), buildTopics(comparisonConfigs[twin.plugin] ?? {}));
  const numbered = sample(sequence, question).map((sequence, index) => ({ sequence, name: `s${index}` }));
  const isLate = refusingPlugins.has(twin.plugin);
  const fill = (as: GetClient) => sendAll(numbered.filter(isKept).map(toCreation), as);
  const late = isLate ? { enable: [twin.plugin], fill } : undefined;
  const { upstream, ours, world, ...standard } = await openPair(port, binaries, { folder, certificate, stack }, late);

  const settings = mergeWithDefaults(standard.settings, question.settings);
  const { announcer, stop } = await openScriptedEndpoints(certificate);
  stack.defer(stop);
  const open = async (ports: Port[]) => {
    const served = await serve(ports, { certificate, world: world() }, settings, announcer);
    stack.defer(served.stop);
    return served;
  };
  const spoilt = await open([]);
  const asItIs = await open([port]);
  const bare = await open([{ ...port, rule: deleteConditions(port.rule) }]);

  const pair = { rule: port.name, upstream, ours };
  const property = createProperty(sequence, pair);
  if (isLate) await fill(ours.as);
  const outcome: ParityResult = {
    rule: port.name,
    plugin: twin.plugin,
    requests: question.requests,
    equal: 0,
    known: {},
    unexplained: 0,
    failedConditions: {},
    calls: { made: 0, acted: 0, withoutConditions: 0 },
    differences: [],
  };

  // A server that refuses everything accepts no webhook configuration, and would call no webhook.
  await Promise.all([isLate || spoilt.callFrom(upstream), asItIs.callFrom(ours)]);
  const [wanted, actual] = await Promise.all([sendAndClear(numbered, upstream), sendAndClear(numbered, ours)]);
  outcome.calls.made = asItIs.calls().length;
  outcome.calls.acted = asItIs.calls().filter(({ refused, operations }) => refused || operations !== 0).length;
  const verdicts = numbered.map(({ name }, index) =>
    compareExchanges(port.name, wanted[index] ?? [], actual[index] ?? [], name),
  );
  for (const verdict of verdicts.flat())
    if (verdict.verdict === "equal") outcome.equal += 1;
    else if (verdict.verdict === "known") outcome.known[verdict.reason] = (outcome.known[verdict.reason] ?? 0) + 1;
    else outcome.unexplained += 1;
  outcome.differences.push(...(await explain(verdicts, property, question, false)));

  await bare.callFrom(ours);
  const again = await sendAndClear(numbered, ours);
  outcome.calls.withoutConditions = bare.calls().length;
  // What differs with them as well has been told already.
  const onlyNow = numbered.map(({ name }, index) =>
    verdicts[index]?.some(isDifferent)
      ? []
      : compareExchanges(port.name, wanted[index] ?? [], again[index] ?? [], name),
  );
  outcome.unexplained += onlyNow.flat().filter(isDifferent).length;
  outcome.differences.push(...(await explain(onlyNow, property, question, true)));
  outcome.failedConditions = await countFailedConditions(ours);
  for (const count of Object.values(outcome.failedConditions)) outcome.unexplained += count;
  return outcome;
};

/** The rule, called whenever it matches. */
const deleteConditions = ({ matchConditions: _, variants, ...rule }: Port["rule"]): Port["rule"] => {
  if (variants === undefined) return rule;
  const deleteVariantConditions = ({ matchConditions: _, ...variant }: RuleVariant<object>) => variant;
  return {
    ...rule,
    variants: (settings: object) => getVariants({ ...rule, variants }, settings)?.map(deleteVariantConditions) ?? [],
  };
};

const buildTopics = ({ namespaces = {}, scenarios: names = [] }: ComparisonConfig) => ({
  namespaces: Object.entries(namespaces).flatMap(([name, length]) =>
    Array.from({ length }, () => (name === "own" ? undefined : name)),
  ),
  scenarios: names.map((name) => scenarios[name]),
});

/** A condition that fails refuses the request or is passed over, as the failurePolicy says; either way it is counted. */
const countFailedConditions = async ({ admin }: Cluster): Promise<Record<string, number>> => {
  const { body } = await admin({ method: "GET", path: "/metrics" });
  const lines = String(body.text).matchAll(
    /^apiserver_admission_match_condition_evaluation_errors_total\{.*name="([^"]+)".*\} (\d+)$/gm,
  );
  const counts: Record<string, number> = {};
  // A line for each phase and operation.
  for (const [, webhook = "", count] of lines) counts[webhook] = (counts[webhook] ?? 0) + Number(count);
  return counts;
};

/** With these on, an empty store is never filled, and no sequence makes an object; every other object is made before. */
const refusingPlugins = new Set(["AlwaysDeny"]);
const isKept = (_: NamedSequence, index: number) => index % 2 === 0;
const toCreation = ({ sequence, name }: NamedSequence): NamedSequence => {
  const steps = sequence.steps.slice(0, 1).map((step) => ({ ...step, dryRun: false }));
  return { name, sequence: { ...sequence, generateName: false, steps } };
};

/** A foreign webhook, called after all rules, that sets imagePullPolicy so that containers run what lies on the node. */
export const competitor = toCatalogueRule(
  "spoiler",
  rule({
    summary: "Changes back what a rule has put right, where the pod's author asks for it.",
    match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
    matchConditions: { "is-wanted": `"${competitorAnnotation}" in object.?metadata.?annotations.orValue({})` },
    mutate(pod: Pod) {
      for (const { container } of listContainers(pod)) container.imagePullPolicy = "Never";
    },
  }),
);

/** Serves these ports and the spoiler with settings. */
const serve = async (ports: Port[], host: RuleHost, settings: object, announcer: Announcer) => {
  const setups = ports.map(({ name, rule }) => {
    // Some rules require an exemption: it names a user that makes no request here.
    const exempt = { namespaces: [], ...(rule.exemptionRequired && { users: ["nobody"] }) };
    return [name, { failurePolicy: "Fail", exempt, settings }];
  });
  const rules = { ...Object.fromEntries(setups), spoiler: {} };
  const { reports, manifests, stop } = await serveRules([...ports, competitor], JSON.stringify({ rules }), host);
  const names = new Set(ports.map(({ name }) => name));
  let start = 0;
  return {
    stop,
    /** The reviews of users' requests that came to the ports since they were registered. */
    calls: () =>
      reports
        .slice(start)
        .filter(({ rule, request }) => names.has(rule) && users.has(request?.userInfo.username ?? "")),
    /** Has these webhooks called by a cluster, in place of others of the same kinds. */
    callFrom: async ({ admin }: Cluster) => {
      await applyConfigurations(admin, extendTimeouts(manifests()), announcer);
      start = reports.length;
    },
  };
};

const users = new Set<string>(["admin", "jane", "system:node:n1"]);

interface NamedSequence {
  sequence: RequestSequence;
  name: string;
}

/** All sequences on one server, some at a time. */
const sendAndClear = async (numbered: NamedSequence[], { as }: Cluster): Promise<Exchange[][]> => {
  const { played, remains } = await sendAll(numbered, as);
  for (const path of remains) await deleteCompletely(path, as);
  return played;
};

const sendAll = async (numbered: NamedSequence[], as: GetClient) => {
  const played: Exchange[][] = [];
  const remains: string[] = [];
  let next = 0;
  const sendNext = async () => {
    for (let index = next++; index < numbered.length; index = next++) {
      const { sequence, name } = numbered[index] as NamedSequence;
      const outcome = await sendSequence(sequence, name, as);
      played[index] = outcome.turns;
      remains.push(...outcome.remains);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, sendNext));
  return { played, remains };
};

type StepVerdict = ComparisonResult & { turns?: Exchange[]; wanted?: ComparableAnswer; actual?: ComparableAnswer };
const isDifferent = ({ verdict }: StepVerdict) => verdict === "different";

const compareExchanges = (rule: string, wanted: Exchange[], actual: Exchange[], sequence: string): StepVerdict[] =>
  wanted.map((turn, index) => {
    const [one, other] = [turn, actual[index] ?? turn].map((turn) => toComparable(turn, sequence)) as [
      ComparableAnswer,
      ComparableAnswer,
    ];
    const comparison = compareAnswers(rule, one, other);
    if (comparison.verdict !== "different") return comparison;
    return { ...comparison, turns: wanted.slice(0, index + 1), wanted: one, actual: other };
  });

type Property = ReturnType<typeof createProperty>;

const listMatches = ({ phases, rule }: Port) =>
  phases.flatMap((phase) => selectPhase(rule.match, phase, rule.settings ?? {}) ?? []);

/** That a sequence is answered alike; each time about an object of another name. */
const createProperty = (
  sequence: Arbitrary<RequestSequence>,
  { rule, upstream, ours }: { rule: string; upstream: Cluster; ours: Cluster },
) => {
  let count = 0;
  return fc.asyncProperty(sequence, async (sequence) => {
    const name = `t${count++}`;
    const [wanted, actual] = await Promise.all(
      [upstream, ours].map((cluster) => sendAndClear([{ sequence, name }], cluster)),
    );
    const difference = compareExchanges(rule, wanted?.[0] ?? [], actual?.[0] ?? [], name).find(isDifferent);
    if (difference) throw new DifferenceError(difference);
  });
};

class DifferenceError extends Error {
  readonly verdict: StepVerdict;
  constructor(verdict: StepVerdict) {
    super("the answers differ");
    this.verdict = verdict;
  }
}

/** As many sequences as have so many requests together; the last one may be cut short. */
const sample = (arbitrary: Arbitrary<RequestSequence>, { requests, seed }: ParityOptions): RequestSequence[] => {
  let left = requests;
  return fc.sample(arbitrary, { seed, numRuns: requests }).flatMap((sequence) => {
    const steps = sequence.steps.slice(0, Math.max(0, left));
    left -= steps.length;
    return steps.length > 0 ? [{ ...sequence, steps }] : [];
  });
};

/** The first few differences, each as the smallest sequence that still shows one. */
const explain = async (
  verdicts: StepVerdict[][],
  property: Property,
  { seed }: ParityOptions,
  withoutConditions: boolean,
): Promise<ParityDifference[]> => {
  const found = verdicts.flatMap((of, index) => {
    const verdict = of.find(isDifferent);
    return verdict ? [{ verdict, index }] : [];
  });
  const differences: ParityDifference[] = [];
  for (const { verdict, index } of found.slice(0, maxExplained)) {
    const { errorInstance } = await fc.check(property, {
      seed,
      path: String(index),
      numRuns: 1,
      interruptAfterTimeLimit: shrinkingTime,
      markInterruptAsFailure: false,
    });
    const again = errorInstance instanceof DifferenceError;
    if (!again && errorInstance) throw errorInstance;
    differences.push(toDifference(again ? errorInstance.verdict : verdict, withoutConditions, again));
  }
  return differences;
};

const toDifference = (verdict: StepVerdict, withoutConditions: boolean, recurs: boolean): ParityDifference => {
  const { turns = [], wanted, actual } = verdict;
  const calls = turns.map(({ call: { method, path, body, contentType, user } }) =>
    [method, path, `as ${user}`, ...(contentType ? [`(${contentType})`] : []), formatBody(body)].join(" ").trim(),
  );
  return { withoutConditions, recurs, calls, diff: wanted && actual ? formatDiff(wanted, actual) : "" };
};

/** Leaves out what the server adds to each object. */
const formatBody = (body: unknown) =>
  JSON.stringify(body, (key, value) => (serverFields.has(key) ? undefined : value)) ?? "";
const serverFields = new Set(["managedFields", "uid", "resourceVersion", "creationTimestamp"]);
