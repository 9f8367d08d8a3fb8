import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { worlds } from "#lib/cluster/live.ts";
import { memoryOf } from "#lib/cluster/memory.ts";
import type { World } from "#lib/needs.ts";
import { type Recorded, recorded } from "#lib/recorded.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { Request } from "#lib/review.ts";
import type { Phase, Rule } from "#lib/rule.ts";
import { merge } from "#lib/settings.ts";
import { decideCase, operationOf, phaseOf, readCases, reviewOf } from "../catalogue/cases.ts";
import { differences } from "../catalogue/outcome.ts";
import type { Listed } from "../catalogue/registry.ts";
import { openCertificate } from "../keys/keys.ts";
import {
  accepts,
  ask,
  calledAs,
  type Heard,
  openObserver,
  type Place,
  prepare,
  type Question,
  type Shape,
  send,
  shapes,
} from "./asking.ts";
import { type Comparable, type Comparison, comparable, compare, diffOf } from "./compare.ts";
import { type Binaries, pluginsIn } from "./control-plane/binaries.ts";
import type { Answer, Client } from "./control-plane/client.ts";
import { bootCluster, type Cluster } from "./control-plane/cluster.ts";
import { outcomes } from "./outcomes.ts";
import { type Port, portsAmong } from "./parity.ts";
import { serveKinds } from "./policies.ts";
import { apply, herald, kindOf, type Manifests, noticed, patient, register, remove, serveRules } from "./postern.ts";
import { requestOf } from "./requests.ts";
import { answering, openScripted } from "./scripted.ts";
import { atHome, homesOf, openHome, settle, withUid } from "./settled.ts";
import { everything } from "./stages.ts";

/** A rule, and all that will be asked of it. */
export interface Docket {
  listed: Listed;
  cases: Case[];
}

/** What a real API server made of a rule's cases. */
export interface Hearing {
  rule: string;
  cases: number;
  asSaid: number;
  /** Cases that no API server passes on as they are, and why. */
  notReceivable: { name: string; reason: string }[];
  /** Of a port's cases under the plugin's own settings: how the plugin answers them. */
  beside?: {
    equal: number;
    known: Record<string, number>;
    /** Those that say otherwise where what they need is really there, or that can't have it there, and why. */
    leftOut: { name: string; reason: string }[];
  };
  /** Why no plugin answers a port's cases. */
  alone?: string;
  differences: Dissent[];
}

/** The same, and of a port whose plugin is gone what that did. */
export interface RuleHearing extends Hearing {
  outcomes?: Hearing;
}

/** A case that isn't as it says, or not as the compiled-in plugin has it. */
export interface Dissent {
  name: string;
  from: "case" | "upstream";
  /** With `-` what is expected, with `+` what the API server says. */
  diff: string;
}

export interface Court {
  /** Asks cases of a rule. What settings they have, its docket must have, too. */
  hear(listed: Listed, cases: Case[]): Promise<Hearing>;
  stop(): Promise<void>;
}

/**
 * One API server without the plugins, where every rule is called under all settings of its cases, each under another
 * name, for those who ask for that; and beside it, for ports, others with the plugins compiled in.
 */
export const openCourt = async (binaries: Binaries, dockets: Docket[]): Promise<Court> => {
  const stops: (() => Promise<unknown>)[] = [];
  const stop = async () => {
    for (const one of stops.splice(0).reverse()) await one();
  };
  try {
    const twins = portsAmong(dockets.map(({ listed }) => listed));
    const { all, defaultOn } = await pluginsIn(binaries);
    const ports = twins.filter((port) => aloneBecause(port, all, binaries) === undefined);
    const benches = Map.groupBy(ports, benchOf);
    const setups = setupsOf(dockets, benches);
    const served = await serve(setups, dockets, stops);
    // Whatever else is asked: what nobody asks about does nothing.
    const wishes = { flags: flagsFor(all), disable: defaultOn.filter((plugin) => !callers.includes(plugin)) };
    const booting = [...benches].map(
      async ([name, ports]) => [name, await bootBeside(binaries, ports, dockets, wishes)] as const,
    );
    const [booted, ...others] = await Promise.allSettled([bootCluster(binaries, wishes), ...booting]);
    if (booted.status === "fulfilled") stops.push(booted.value.stop);
    for (const one of others) if (one.status === "fulfilled") stops.push(one.value[1].stop);
    const ours = fulfilled(booted);
    await serveKinds(ours.admin);
    const upstream = new Map(others.map(fulfilled));
    const { place, callFor } = await served.calledBy(ours);

    const hear = async (listed: Listed, cases: Case[]): Promise<Hearing> => {
      const [port] = portsAmong([listed]);
      const alone = port && (aloneBecause(port, all, binaries) ?? unheardBecause(port));
      const server = port && alone === undefined ? upstream.get(benchOf(port)) : undefined;
      const hearing: Hearing = {
        ...{ rule: listed.name, cases: cases.length, asSaid: 0, notReceivable: [], differences: [] },
        ...(server && { beside: { equal: 0, known: {}, leftOut: [] } }),
        ...(alone && { alone }),
      };
      const setupOf = (entry: Case): Setup => {
        const setup = setups.get(keyOf(listed, entry));
        if (!setup) throw new Error(`${listed.name} is not served as "${entry.name}" has it`);
        return setup;
      };
      const twins = port && server && setups.get(twinsOf(port));
      await callFor([...cases.map(setupOf), ...(twins ? [twins] : [])]);
      for (const [index, entry] of cases.entries()) {
        const { name } = entry;
        const setup = setupOf(entry);
        const { labels } = setup;
        const around = async (_: Client, stored: object) => {
          served.tell(setup.name, withUid(entry.needs ?? {}, uidIn(entry.oldObject), uidIn(stored)));
          return async () => {};
        };
        const question = { listed, entry, namespace: homeOf(listed, index), labels, around };
        const finding = await judge(place, question, setup.name);
        if ("reason" in finding) {
          hearing.notReceivable.push({ name, reason: finding.reason });
          continue;
        }
        if (finding.diff === undefined) hearing.asSaid += 1;
        else hearing.differences.push({ name, from: "case", diff: finding.diff });

        if (!port || !server || !hearing.beside || !isTwinned(port, entry)) continue;
        const here = { listed, entry: atHome(entry, homeOf(listed, index)), namespace: homeOf(listed, index), labels };
        const { diff, leftOut, ...comparison } = await besideUpstream(
          place,
          server,
          here,
          finding.shape,
          twinsOf(port),
        );
        const { equal, known } = hearing.beside;
        if (leftOut !== undefined) hearing.beside.leftOut.push({ name, reason: leftOut });
        else if (comparison.verdict === "equal") hearing.beside.equal = equal + 1;
        else if (comparison.verdict === "known") known[comparison.reason] = (known[comparison.reason] ?? 0) + 1;
        else hearing.differences.push({ name, from: "upstream", diff });
      }
      return hearing;
    };
    return { hear, stop };
  } catch (error) {
    await stop();
    throw error;
  }
};

/** All cases of these rules, and their outcomes. */
export const hearCases = async (binaries: Binaries, rules: Listed[]): Promise<RuleHearing[]> => {
  const dockets = await Promise.all(rules.map(async (listed) => ({ listed, cases: await readCases(listed) })));
  const further = ({ name }: Listed) => outcomes[name] ?? [];
  const court = await openCourt(
    binaries,
    dockets.map(({ listed, cases }) => ({ listed, cases: [...cases, ...further(listed)] })),
  );
  try {
    const hearings: RuleHearing[] = [];
    for (const { listed, cases } of dockets)
      hearings.push({
        ...(await court.hear(listed, cases)),
        ...(further(listed).length > 0 && { outcomes: await court.hear(listed, further(listed)) }),
      });
    return hearings;
  } finally {
    await court.stop();
  }
};

/** Some cases' pods are privileged, and others are in groups, where there are such. */
export const flagsFor = (plugins: string[]) => [
  "--allow-privileged=true",
  ...(plugins.includes("PodGroupProtection") ? everything : []),
];

/** What was asked before, another server was not asked. */
export const remembers = ({ needs = {} }: Rule) => Object.values(needs).some(({ verb }) => verb === "ledger");

export const asksServices = ({ needs = {} }: Rule) => Object.values(needs).some(({ verb }) => verb === "https");

/** Without these, no rule is called. */
const callers = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

/** Why a port's plugin can't answer its cases. */
export const aloneBecause = ({ rule }: Port, plugins: string[], { version }: Binaries): string | undefined => {
  if (!plugins.includes(rule.twin.plugin)) return `Kubernetes ${version} has no plugin ${rule.twin.plugin}`;
  if (rule.twin.plugin === "NodeDeclaredFeatureValidator" && !plugins.includes("PodResizeValidator"))
    return `${rule.twin.plugin} does nothing in Kubernetes ${version} unless a gate is opened`;
  if (asksServices(rule))
    return `${rule.twin.plugin} takes a file that leads to a service, which its cases have only on paper`;
  if (remembers(rule)) return `${rule.twin.plugin} takes a file, and its answers depend on what was asked before`;
};

/** Why a port's plugin would say something else to its cases: here everybody may do everything. */
const unheardBecause = ({ rule }: Port): string | undefined =>
  rule.authorizedBy && `${rule.twin.plugin} refuses those alone who may not do something, and here everybody may`;

/** What the authorizer decides comes to the rule here as if nobody might. */
const undecided = (listed: Listed): Listed => {
  const { authorizedBy: _, ...rule } = listed.rule;
  return { ...listed, rule };
};

/**
 * Ports whose plugins are on in the same API server. What a missing namespace leads to is up to one plugin in each; and
 * one that refuses everything leaves nothing to the others.
 */
export const benchOf = ({ name, rule }: Port): string => {
  if (rule.exemptionRequired) return name;
  // All validating plugins are asked one after the other, webhooks at once: of two that refuse, either may be heard.
  if (["namespace-lifecycle", "pod-resize-validator"].includes(name)) return "namespace-lifecycle";
  // Both look at accounts; and what a kubelet's pod may not have, the other one refuses first.
  if (name === "node-restriction") return "namespace-lifecycle";
  // They tell themselves that a namespace is missing.
  if (["namespace-exists", "pod-node-selector", "pod-toleration-restriction"].includes(name)) return "namespace-exists";
  return "namespace-auto-provision";
};
const readsClasses = ({ rule }: Listed) =>
  Object.values(rule.needs ?? {}).some(({ kind }) => kind?.resource === "priorityclasses");
const twinsOf = (port: Port) => `twins-${benchOf(port)}`;

const fulfilled = <T>(result: PromiseSettledResult<T>): T => {
  if (result.status === "rejected") throw result.reason;
  return result.value;
};
const uidIn = (object: unknown) => Object(Object(object).metadata).uid;
const pluginOf = ({ rule }: Port) => rule.twin.plugin;
/** Objects of different cases never meet. */
const homeOf = ({ name }: Listed, index: number) => `${name}-${index}`;

/** What some cases have in common: how rules are set up. */
interface Setup {
  name: string;
  rules: Record<string, object>;
  /** Of namespaces where the rules are called. */
  labels: Record<string, string>;
  /** Which half is called alone: the other would put right what this one is asked about, or refuse what it lets by. */
  phase?: Phase;
  /** The one of its entries that is called then, whatever namespaces that is for. */
  variant?: string | undefined;
}

/** Together they may not keep the API server waiting for long. */
const brief = { timeoutSeconds: 2 };
const keyOf = ({ name, rule }: Listed, entry: Case) =>
  JSON.stringify([name, entry.variant, phaseOf(entry), merge(rule.settings ?? {}, entry.settings)]);

const setupsOf = (dockets: Docket[], benches: Map<string, Port[]>): Map<string, Setup> => {
  const setups = new Map<string, Setup>();
  const setUp = (settings: object) => ({ failurePolicy: "Fail", exempt: { namespaces: [] }, settings });
  for (const { listed, cases } of dockets)
    for (const entry of cases) {
      const key = keyOf(listed, entry);
      if (setups.has(key)) continue;
      const settings = merge(listed.rule.settings ?? {}, entry.settings);
      setups.set(key, {
        name: `case-${setups.size}`,
        rules: { [listed.name]: setUp(settings) },
        labels: labelsFor(listed, settings),
        phase: phaseOf(entry),
        variant: entry.variant,
      });
    }
  for (const ports of benches.values()) {
    const rules = Object.fromEntries(
      ports.map(({ name, rule }) => [name, { ...setUp({ ...rule.twin.settings }), ...brief }]),
    );
    for (const name of ports.slice(0, 1).map(twinsOf)) setups.set(name, { name, rules, labels: {} });
  }
  return setups;
};

const labelsFor = ({ rule: { namespaceSelector } }: Listed, settings: object): Record<string, string> => {
  const selector = typeof namespaceSelector === "function" ? namespaceSelector(settings) : namespaceSelector;
  return (selector && "matchLabels" in selector && selector.matchLabels) || {};
};

/** All setups behind one gateway, as clusters of one postern.yaml. */
const serve = async (setups: Map<string, Setup>, dockets: Docket[], stops: (() => Promise<unknown>)[]) => {
  const folder = await mkdtemp(join(tmpdir(), "postern-cases-"));
  stops.push(() => rm(folder, { recursive: true, force: true }));
  const certificate = await openCertificate(folder, "127.0.0.1");
  const scripted = await openScripted(certificate, {
    herald: (review, word) => ({ body: answering(review, { warnings: [word] }) }),
  });
  stops.push(scripted.stop);
  const announcer = herald(`${scripted.url}/herald`, certificate.ca);
  const observer = openObserver();
  const clusters = [...setups.values(), { name: "observer", rules: { observer: {} } }].map(({ name, rules }) => [
    name,
    { rules },
  ]);
  /** What those say who are asked about a case. All others read the cluster, each time anew. */
  const needs = new Map<string, Recorded>();
  let live = (cluster: string, _: number): World => recorded(needs.get(cluster) ?? {});
  const served = await serveRules(
    [...dockets.map(({ listed }) => undecided(listed)), observer.listed],
    JSON.stringify({ clusters: Object.fromEntries(clusters) }),
    {
      certificate,
      world: (cluster, milliseconds) => {
        const said = needs.get(cluster);
        return said ? recorded(said) : live(cluster, milliseconds);
      },
    },
  );
  stops.push(served.stop);

  const calledBy = async ({ admin, server, ca, tokenOf }: Cluster) => {
    const connection = { server, ca, credentials: { token: tokenOf("admin") } };
    const names = [...setups.values()].map(({ name }) => [name, connection] as const);
    live = worlds(Object.fromEntries(names), memoryOf({ entries: 0, bytes: 0 }));
    const manifestsOf = (setup: Setup): Manifests => {
      const { name, variant } = setup;
      const whole = setup.phase !== undefined && variant === undefined;
      const halves = served.manifests({ name, cluster: name, whole });
      return calledAs(name, patient(halves.flatMap((half) => askedAs(setup, half))));
    };
    const called = new Map<Setup, Manifests>();
    /** From now on it has the entries of these setups alone: with those of all, it would weigh hundreds at each request. */
    const callFor = async (wanted: Setup[]): Promise<void> => {
      const over = [...called].filter(([setup]) => !wanted.includes(setup));
      const added = [...new Set(wanted)]
        .filter((setup) => !called.has(setup))
        .map((setup) => [setup, manifestsOf(setup)] as const);
      for (const [setup] of over) called.delete(setup);
      for (const [setup, manifests] of added) called.set(setup, manifests);
      await remove(
        admin,
        over.flatMap(([, manifests]) => manifests),
        announcer,
      );
      await apply(
        admin,
        added.flatMap(([, manifests]) => manifests),
        announcer,
      );
    };
    // The API server calls by the order of names: what comes here last is what the others have made of it.
    await register(admin, observer.calledAlways(patient(served.manifests({ name: "z", cluster: "observer" }))));

    const place: Place = { admin, observer };
    const path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    const probe = { method: "POST" as const, path, user: { username: "jane" }, name: "probe" };
    const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "probe" } };
    const heard: Heard[] = [];
    await noticed(
      async () => heard.push(await send(place, probe, body)),
      () => heard.some(({ seen }) => seen.mutate && seen.validate),
    );
    return { place, callFor };
  };
  return { calledBy, tell: (name: string, said: Recorded) => void needs.set(name, said) };
};

/** What of a configuration a setup's cases are asked with. */
const askedAs = ({ phase, variant }: Setup, half: Manifests[number]): Manifests => {
  if (phase !== undefined && half.kind !== kindOf(phase)) return [];
  if (variant === undefined) return [half];
  const own = half.webhooks.filter(({ name }) => name.startsWith(`${variant}.`));
  return [{ ...half, webhooks: own.map(({ namespaceSelector: _, ...entry }) => entry) }];
};

type Finding = { reason: string } | { diff?: string; shape: Shape };

/** A case may leave out what an update keeps: where it isn't as it says, it may be so with all of that. */
const judge = async (place: Place, question: Question, setup: string): Promise<Finding> => {
  const found = await judgeIn(shapes, place, question, setup);
  if ("reason" in found || found.diff === undefined) return found;
  const kept = await judgeIn(shapes.slice(1), place, question, setup);
  return "reason" in kept || kept.diff !== undefined ? found : kept;
};

/** Whether the API server says with the rule what a case says; and, by asking without the rule, whether it can. */
const judgeIn = async (shapes: readonly Shape[], place: Place, question: Question, setup: string): Promise<Finding> => {
  const { listed, entry } = question;
  const phase = phaseOf(entry);
  const given = entry[phase] ?? {};
  const tries: { shape: Shape; plain: Heard }[] = [];
  for (const shape of shapes)
    if (!tries.some(({ plain }) => accepts(plain.answer)))
      tries.push({ shape, plain: await ask(place, question, given, shape) });
  const best = tries.find(({ plain }) => accepts(plain.answer)) ?? tries.find(({ plain }) => plain.seen[phase]);
  if (!best?.plain.seen[phase]) return { reason: firstLine(tries[0]?.plain.answer.body) };

  const { shape, plain } = best;
  const ours = await ask(place, question, given, shape, setup);
  // Who is refused before the object is looked at isn't warned of all that is in it.
  const isEarly = phase === "mutate" && entry.refused !== undefined;
  const due = plain.answer.warnings.filter((text) => !isEarly || ours.answer.warnings.includes(text));
  const warnings = [...due, ...(entry.warnings ?? [])];
  const becomes = entry.becomes && (await ask(place, question, entry.becomes, shape));
  const [wanted, actual] =
    entry.refused === undefined
      ? [{ ...stored(becomes ?? plain), warnings }, stored(ours)]
      : [refusal(listed, entry, warnings), accepts(ours.answer) ? stored(ours) : refused(ours)];
  if (isDeepStrictEqual(wanted, actual)) return { shape };

  // An older API server drops what it doesn't know.
  const [dropped] = addedIn(given, plain.seen[phase]?.object);
  if (dropped) return { reason: `${fieldOf(dropped)} never arrives` };
  const missing = await missingIn(question, plain, ours);
  return missing ? { reason: `never arrives without ${missing}` } : { shape, diff: diffOf(wanted, actual) };
};

const firstLine = ({ message, text }: Record<string, unknown> = {}) =>
  String(message ?? text)
    .trim()
    .split("\n")[0] ?? "";

/** What is stored. Where the object isn't valid, it's what had become of it by then. Nobody manages what webhooks add. */
const stored = ({ seen, ...turn }: Heard): Comparable => {
  const { answer } = turn;
  const body = answer.code === 422 && seen.mutate ? Object(seen.mutate.object) : answer.body;
  const { managedFields: _, ...metadata } = Object(body.metadata);
  return comparable({ ...turn, answer: { ...answer, body: { ...body, metadata } } }, turn.name);
};

const denial = ({ name }: Listed, { variant }: Case) =>
  `admission webhook "${variant === undefined ? "" : `${variant}.`}${name}.postern.dev" denied the request: `;
const refusal = (listed: Listed, entry: Case, warnings: string[]): Comparable => {
  const { refused, code = 403, reason = "Forbidden" } = entry;
  // Where there is no sentence, the API server says the reason.
  return { code, warnings, body: { reason, message: `${denial(listed, entry)}${refused || reason}` } };
};
const refused = ({ answer: { code, warnings, body } }: Heard): Comparable => {
  return { code, warnings, body: { reason: body.reason, message: body.message } };
};

/**
 * What a case leaves out, and no object comes without: the API server fills it in or insists on it. That is so where the
 * rule says of the object that came what the API server says, and without that field what the case says.
 */
const missingIn = async ({ listed, entry }: Question, plain: Heard, ours: Heard): Promise<string | undefined> => {
  const phase = phaseOf(entry);
  const came = phase === "mutate" ? plain.seen.mutate : ours.seen.validate;
  const review = reviewOf(listed, entry);
  if (entry.becomes || !came || differences(entry, await decideCase(listed, entry, review)).length > 0) return;

  const saidOf = async (request: Request) =>
    (await decideCase(listed, entry, { ...review, request })).outcome.status?.message;
  const [said, { answer }] = [await saidOf(came), ours];
  if (said === entry.refused) return;
  if (accepts(answer) ? said !== undefined : answer.body.message !== `${denial(listed, entry)}${said}`) return;
  for (const path of addedIn(came.object, entry[phase])) {
    const object = structuredClone(came.object);
    leaveOut(object, path);
    if ((await saidOf({ ...came, object })) === entry.refused) return fieldOf(path);
  }
};

type Path = (string | number)[];

/** Where an object has something that the case leaves out. */
const addedIn = (object: unknown, given: unknown): Path[] => {
  if (!isOpen(object) || !isOpen(given)) return [];
  return Object.entries(object).flatMap(([name, value]): Path[] => {
    const key = Array.isArray(object) ? Number(name) : name;
    if (!Object.hasOwn(given, key)) return [[key]];
    return addedIn(value, Reflect.get(given, key)).map((path) => [key, ...path]);
  });
};

const isOpen = (value: unknown): value is object => typeof value === "object" && value !== null;

const leaveOut = (object: unknown, [first = "", ...rest]: Path): void => {
  if (rest.length > 0) leaveOut(Reflect.get(Object(object), first), rest);
  else Reflect.deleteProperty(Object(object), first);
};

const fieldOf = (path: Path) =>
  path
    .map((key) => (typeof key === "number" ? `[${key}]` : `.${key}`))
    .join("")
    .slice(1);

/** Whether a case has the settings under which the rule is its plugin's equal. */
const isTwinned = ({ rule }: Port, { settings }: Case) =>
  isDeepStrictEqual(merge(rule.settings ?? {}, settings), merge(rule.settings ?? {}, rule.twin.settings));

/** An API server with these plugins; what the cases find there is older than they are. */
const bootBeside = (
  binaries: Binaries,
  ports: Port[],
  dockets: Docket[],
  wishes: { flags: string[]; disable: string[] },
): Promise<Cluster> => {
  const names = ports.map(({ name }) => name);
  const fill = async (as: Cluster["as"]) => {
    for (const { listed, cases } of dockets.filter(({ listed }) => names.includes(listed.name)))
      for (const [index, entry] of cases.entries()) {
        const home = homeOf(listed, index);
        const here = atHome(entry, home);
        for (const namespace of homesOf(here)) await openHome(as("admin"), namespace);
        const request = await requestOf(listed, here, home, as("admin"));
        // What all cases share is there for one of them at a time.
        if (request.namespace !== undefined || !readsClasses(listed)) await prepare(as("admin"), request, {});
      }
  };
  return bootCluster(binaries, { ...wishes, late: { enable: ports.map(pluginOf), fill } });
};

/** Differences that are meant to be, and that only cases come to: each stands in its rule's README. */
const meant: { rule: string; reason: string; says(wanted: Answer, actual: Answer): boolean }[] = [
  {
    rule: "limit-ranger",
    reason: "upstream's arithmetic overflows from 2^63 on, and admits such an amount",
    says: (wanted, actual) => accepts(wanted) && / but (limit|request) is \d+E$/.test(String(actual.body.message)),
  },
];

type Beside = Comparison & { diff: string; leftOut?: string };

/** The same to an API server with the plugins and to ours, both with all that the case needs. */
const besideUpstream = async (
  place: Place,
  { admin }: Cluster,
  question: Question,
  shape: Shape,
  setup: string,
): Promise<Beside> => {
  const { listed, entry } = question;
  const given = entry[phaseOf(entry)] ?? {};
  const lacks = new Map<Client, string[]>();
  const around = async (admin: Client, stored: object) => {
    const there = withUid(entry, uidIn(entry.oldObject), uidIn(stored));
    const settled = await settle(admin, listed, there);
    lacks.set(admin, settled.lacks);
    return settled.leave;
  };
  const askUpstream = () => ask({ admin }, { ...question, around }, given, shape);
  const [upstream, ours] = await Promise.all([askUpstream(), ask(place, { ...question, around }, given, shape, setup)]);
  const comparedTo = (upstream: Heard) => {
    const [wanted, actual] = [upstream, ours].map((heard) => comparable(heard, heard.name)) as [Comparable, Comparable];
    return { ...compare(listed.name, wanted, actual), diff: diffOf(wanted, actual), wanted };
  };
  const { wanted: first, ...compared } = comparedTo(upstream);
  let comparison: Comparison & { diff: string } = compared;
  // Which of several objects a plugin looks at first may be up to chance.
  const mayVary = listed.rule.needs !== undefined && operationOf(entry) === "CREATE";
  let varies = false;
  for (let left = 8; left > 0 && mayVary && comparison.verdict === "different"; left--) {
    const { wanted, ...again } = comparedTo(await askUpstream());
    varies ||= !isDeepStrictEqual(wanted, first);
    if (again.verdict !== "different") comparison = again;
  }
  if (comparison.verdict === "different") {
    const explains = meant.find(({ rule, says }) => rule === listed.name && says(upstream.answer, ours.answer));
    if (explains) comparison = { ...comparison, verdict: "known", reason: explains.reason };
  }
  const isRefused = String(ours.answer.body.message).startsWith("admission webhook ");
  const isOurs = isRefused === (entry.refused !== undefined);
  if (comparison.verdict !== "different" && isOurs) return comparison;
  const { code, body } = upstream.answer;
  const fault = code === 500 && isOurs ? `upstream fails there: ${firstLine(body)}` : undefined;
  const [here = [], there = []] = [place.admin, admin].map((one) => lacks.get(one));
  // Where both lack the same, they must still answer alike.
  const isExcused = comparison.verdict !== "different" || !isDeepStrictEqual(here, there);
  const lacking = isExcused ? (here[0] ?? there[0]) : undefined;
  const leftOut = lacking ?? fault ?? (varies ? "upstream answers now this, now that" : undefined);
  return { ...comparison, ...(leftOut !== undefined && { leftOut }) };
};
