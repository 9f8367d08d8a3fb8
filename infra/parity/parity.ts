import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc, { type Arbitrary } from "fast-check";
import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { listContainers } from "#lib/objects/pod.ts";
import { getVariants, type RuleVariant, rule, selectPhase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { openCertificate } from "../keys/keys.ts";
import { type Comparable, type Comparison, comparable, compare, diffOf } from "./compare.ts";
import type { Binaries } from "./control-plane/binaries.ts";
import type { Cluster } from "./control-plane/cluster.ts";
import { scenarios } from "./generators/scenarios.ts";
import { sequencesFor } from "./generators/sequences.ts";
import { type Sequence, spoil } from "./generators/steps.ts";
import { clear, play, type Turn, type Users } from "./player.ts";
import { type ComparisonConfig, comparisonConfigs, type Port } from "./plugins.ts";
import { apply, type Host, listed, patient, serveRules } from "./rule-server.ts";
import { type Announcer, openScripted } from "./scripted-endpoints.ts";
import { openPair } from "./server-pair.ts";

/** What to find out. */
export interface Question {
  /** How many, to each server. */
  requests: number;
  /** The same seed asks the same. */
  seed: number;
  /** Other settings of the rule than those with which it is its twin's equal. */
  settings?: object;
}

/** An unexplained difference. */
export interface Difference {
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
export interface Parity {
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
  differences: Difference[];
}

/** Sequences at a time, on each server. */
const abreast = 8;
const shrinkingTime = 20_000;
/** An unexplained difference is shrunk and shown; the others are mostly the same one again. */
const shown = 3;

/** Asks a server with the compiled-in plugin and one without it that calls Postern the same, and compares. */
export const parityOf = async (port: Port, binaries: Binaries, question: Question): Promise<Parity> => {
  const { upstreamPlugin: twin } = port.rule;
  await using stack = new AsyncDisposableStack();
  const { path: folder } = stack.use(await mkdtempDisposable(join(tmpdir(), "postern-parity-")));
  const certificate = await openCertificate(folder, "127.0.0.1");
  const sequence = sequencesFor(matchesOf(port), topicsOf(comparisonConfigs[twin.plugin] ?? {}));
  const numbered = sample(sequence, question).map((sequence, index) => ({ sequence, name: `s${index}` }));
  const isLate = tooEarly.has(twin.plugin);
  const fill = (as: Users) => playAll(numbered.filter(isKept).map(creation), as);
  const late = isLate ? { enable: [twin.plugin], fill } : undefined;
  const { upstream, ours, world, ...standard } = await openPair(port, binaries, { folder, certificate, stack }, late);

  const settings = mergeWithDefaults(standard.settings, question.settings);
  const { announcer, stop } = await openScripted(certificate);
  stack.defer(stop);
  const open = async (ports: Port[]) => {
    const served = await serve(ports, { certificate, world: world() }, settings, announcer);
    stack.defer(served.stop);
    return served;
  };
  const spoilt = await open([]);
  const asItIs = await open([port]);
  const bare = await open([{ ...port, rule: unconditional(port.rule) }]);

  const pair = { rule: port.name, upstream, ours };
  const property = propertyOf(sequence, pair);
  if (isLate) await fill(ours.as);
  const outcome: Parity = {
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
  const [wanted, actual] = await Promise.all([playAndClear(numbered, upstream), playAndClear(numbered, ours)]);
  outcome.calls.made = asItIs.calls().length;
  outcome.calls.acted = asItIs.calls().filter(({ refused, operations }) => refused || operations !== 0).length;
  const verdicts = numbered.map(({ name }, index) =>
    verdictsOf(port.name, wanted[index] ?? [], actual[index] ?? [], name),
  );
  for (const verdict of verdicts.flat())
    if (verdict.verdict === "equal") outcome.equal += 1;
    else if (verdict.verdict === "known") outcome.known[verdict.reason] = (outcome.known[verdict.reason] ?? 0) + 1;
    else outcome.unexplained += 1;
  outcome.differences.push(...(await explain(verdicts, property, question, false)));

  await bare.callFrom(ours);
  const again = await playAndClear(numbered, ours);
  outcome.calls.withoutConditions = bare.calls().length;
  // What differs with them as well has been told already.
  const onlyNow = numbered.map(({ name }, index) =>
    verdicts[index]?.some(isDifferent) ? [] : verdictsOf(port.name, wanted[index] ?? [], again[index] ?? [], name),
  );
  outcome.unexplained += onlyNow.flat().filter(isDifferent).length;
  outcome.differences.push(...(await explain(onlyNow, property, question, true)));
  outcome.failedConditions = await failedConditions(ours);
  for (const count of Object.values(outcome.failedConditions)) outcome.unexplained += count;
  return outcome;
};

/** The rule, called whenever it matches. */
const unconditional = ({ matchConditions: _, variants, ...rule }: Port["rule"]): Port["rule"] => {
  if (variants === undefined) return rule;
  const unasked = ({ matchConditions: _, ...variant }: RuleVariant<object>) => variant;
  return { ...rule, variants: (settings: object) => getVariants({ ...rule, variants }, settings)?.map(unasked) ?? [] };
};

const topicsOf = ({ namespaces = {}, scenarios: names = [] }: ComparisonConfig) => ({
  namespaces: Object.entries(namespaces).flatMap(([name, length]) =>
    Array.from({ length }, () => (name === "own" ? undefined : name)),
  ),
  scenarios: names.map((name) => scenarios[name]),
});

/** A condition that fails refuses the request or is passed over, as the failurePolicy says; either way it is counted. */
const failedConditions = async ({ admin }: Cluster): Promise<Record<string, number>> => {
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
const tooEarly = new Set(["AlwaysDeny"]);
const isKept = (_: Numbered, index: number) => index % 2 === 0;
const creation = ({ sequence, name }: Numbered): Numbered => {
  const steps = sequence.steps.slice(0, 1).map((step) => ({ ...step, dryRun: false }));
  return { name, sequence: { ...sequence, generateName: false, steps } };
};

/** A foreign webhook, called after all rules, that sets imagePullPolicy so that containers run what lies on the node. */
export const spoiler = listed(
  "spoiler",
  rule({
    summary: "Changes back what a rule has put right, where the pod's author asks for it.",
    match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
    matchConditions: { "is-wanted": `"${spoil}" in object.?metadata.?annotations.orValue({})` },
    mutate(pod: Pod) {
      for (const { container } of listContainers(pod)) container.imagePullPolicy = "Never";
    },
  }),
);

/** Serves these ports and the spoiler with settings. */
const serve = async (ports: Port[], host: Host, settings: object, announcer: Announcer) => {
  const setups = ports.map(({ name, rule }) => {
    // Some rules require an exemption: it names a user that makes no request here.
    const exempt = { namespaces: [], ...(rule.exemptionRequired && { users: ["nobody"] }) };
    return [name, { failurePolicy: "Fail", exempt, settings }];
  });
  const rules = { ...Object.fromEntries(setups), spoiler: {} };
  const { reports, manifests, stop } = await serveRules([...ports, spoiler], JSON.stringify({ rules }), host);
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
      await apply(admin, patient(manifests()), announcer);
      start = reports.length;
    },
  };
};

const users = new Set<string>(["admin", "jane", "system:node:n1"]);

interface Numbered {
  sequence: Sequence;
  name: string;
}

/** All sequences on one server, some at a time. */
const playAndClear = async (numbered: Numbered[], { as }: Cluster): Promise<Turn[][]> => {
  const { played, remains } = await playAll(numbered, as);
  for (const path of remains) await clear(path, as);
  return played;
};

const playAll = async (numbered: Numbered[], as: Users) => {
  const played: Turn[][] = [];
  const remains: string[] = [];
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < numbered.length; index = next++) {
      const { sequence, name } = numbered[index] as Numbered;
      const outcome = await play(sequence, name, as);
      played[index] = outcome.turns;
      remains.push(...outcome.remains);
    }
  };
  await Promise.all(Array.from({ length: abreast }, worker));
  return { played, remains };
};

type Verdict = Comparison & { turns?: Turn[]; wanted?: Comparable; actual?: Comparable };
const isDifferent = ({ verdict }: Verdict) => verdict === "different";

const verdictsOf = (rule: string, wanted: Turn[], actual: Turn[], sequence: string): Verdict[] =>
  wanted.map((turn, index) => {
    const [one, other] = [turn, actual[index] ?? turn].map((turn) => comparable(turn, sequence)) as [
      Comparable,
      Comparable,
    ];
    const comparison = compare(rule, one, other);
    if (comparison.verdict !== "different") return comparison;
    return { ...comparison, turns: wanted.slice(0, index + 1), wanted: one, actual: other };
  });

type Property = ReturnType<typeof propertyOf>;

const matchesOf = ({ phases, rule }: Port) =>
  phases.flatMap((phase) => selectPhase(rule.match, phase, rule.settings ?? {}) ?? []);

/** That a sequence is answered alike; each time about an object of another name. */
const propertyOf = (
  sequence: Arbitrary<Sequence>,
  { rule, upstream, ours }: { rule: string; upstream: Cluster; ours: Cluster },
) => {
  let count = 0;
  return fc.asyncProperty(sequence, async (sequence) => {
    const name = `t${count++}`;
    const [wanted, actual] = await Promise.all(
      [upstream, ours].map((cluster) => playAndClear([{ sequence, name }], cluster)),
    );
    const difference = verdictsOf(rule, wanted?.[0] ?? [], actual?.[0] ?? [], name).find(isDifferent);
    if (difference) throw new Differs(difference);
  });
};

class Differs extends Error {
  readonly verdict: Verdict;
  constructor(verdict: Verdict) {
    super("the answers differ");
    this.verdict = verdict;
  }
}

/** As many sequences as have so many requests together; the last one may be cut short. */
const sample = (arbitrary: Arbitrary<Sequence>, { requests, seed }: Question): Sequence[] => {
  let left = requests;
  return fc.sample(arbitrary, { seed, numRuns: requests }).flatMap((sequence) => {
    const steps = sequence.steps.slice(0, Math.max(0, left));
    left -= steps.length;
    return steps.length > 0 ? [{ ...sequence, steps }] : [];
  });
};

/** The first few differences, each as the smallest sequence that still shows one. */
const explain = async (
  verdicts: Verdict[][],
  property: Property,
  { seed }: Question,
  withoutConditions: boolean,
): Promise<Difference[]> => {
  const found = verdicts.flatMap((of, index) => {
    const verdict = of.find(isDifferent);
    return verdict ? [{ verdict, index }] : [];
  });
  const differences: Difference[] = [];
  for (const { verdict, index } of found.slice(0, shown)) {
    const { errorInstance } = await fc.check(property, {
      seed,
      path: String(index),
      numRuns: 1,
      interruptAfterTimeLimit: shrinkingTime,
      markInterruptAsFailure: false,
    });
    const again = errorInstance instanceof Differs;
    if (!again && errorInstance) throw errorInstance;
    differences.push(differenceOf(again ? errorInstance.verdict : verdict, withoutConditions, again));
  }
  return differences;
};

const differenceOf = (verdict: Verdict, withoutConditions: boolean, recurs: boolean): Difference => {
  const { turns = [], wanted, actual } = verdict;
  const calls = turns.map(({ call: { method, path, body, contentType, user } }) =>
    [method, path, `as ${user}`, ...(contentType ? [`(${contentType})`] : []), shownBody(body)].join(" ").trim(),
  );
  return { withoutConditions, recurs, calls, diff: wanted && actual ? diffOf(wanted, actual) : "" };
};

/** Leaves out what the server adds to each object. */
const shownBody = (body: unknown) =>
  JSON.stringify(body, (key, value) => (unremarkable.has(key) ? undefined : value)) ?? "";
const unremarkable = new Set(["managedFields", "uid", "resourceVersion", "creationTimestamp"]);
