import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { type Recorded, recorded } from "#lib/recorded.ts";
import type { Request } from "#lib/review.ts";
import { merge } from "#lib/settings.ts";
import { type Case, decideCase, differences, phaseOf, readCases, reviewOf } from "../../infra/cases.ts";
import { openCertificate } from "../../infra/keys.ts";
import type { Listed } from "../../infra/registry.ts";
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
import type { Binaries } from "./binaries.ts";
import type { Client } from "./client.ts";
import { bootCluster, type Cluster } from "./cluster.ts";
import { type Comparable, type Comparison, comparable, compare, diffOf } from "./compare.ts";
import { outcomes } from "./outcomes.ts";
import { type Port, portsAmong } from "./parity.ts";
import { noticed, register, serveRules } from "./postern.ts";
import { requestOf } from "./requests.ts";

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
  beside?: { equal: number; known: Record<string, number> };
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
    const ports = portsAmong(dockets.map(({ listed }) => listed));
    const setups = setupsOf(dockets, ports.filter(isSociable));
    const served = await serve(setups, dockets, stops);
    const defaultOn = ports.filter(({ rule }) => rule.twin.defaultOn).map(pluginOf);
    const booted = await Promise.allSettled([
      bootCluster(binaries, { flags, disable: defaultOn }),
      bootBeside(binaries, ports.filter(isSociable), dockets),
      bootBeside(
        binaries,
        ports.filter((port) => !isSociable(port)),
        dockets,
      ),
    ]);
    for (const one of booted) if (one.status === "fulfilled" && one.value) stops.push(one.value.stop);
    const [ours, upstream, alone] = booted.map((one) => {
      if (one.status === "rejected") throw one.reason;
      return one.value;
    });
    if (!ours) throw new Error("there is no API server to ask");
    const place = await served.calledBy(ours.admin);

    const hear = async (listed: Listed, cases: Case[]): Promise<Hearing> => {
      const [port] = portsAmong([listed]);
      const server = port && (isSociable(port) ? upstream : alone);
      const hearing: Hearing = {
        ...{ rule: listed.name, cases: cases.length, asSaid: 0, notReceivable: [], differences: [] },
        ...(port && { beside: { equal: 0, known: {} } }),
      };
      for (const [index, entry] of cases.entries()) {
        const { name } = entry;
        const setup = setups.get(keyOf(listed, entry));
        if (!setup) throw new Error(`${listed.name} is not served as "${name}" has it`);
        const question = { listed, entry, namespace: homeOf(listed, index), labels: setup.labels };
        const finding = await judge(place, question, setup.name);
        if ("reason" in finding) {
          hearing.notReceivable.push({ name, reason: finding.reason });
          continue;
        }
        if (finding.diff === undefined) hearing.asSaid += 1;
        else hearing.differences.push({ name, from: "case", diff: finding.diff });

        if (!server || !hearing.beside || !isTwinned(port, entry)) continue;
        const called = isSociable(port) ? everyTwin : setup.name;
        const { diff, ...comparison } = await besideUpstream(place, server, question, finding.shape, called);
        const { equal, known } = hearing.beside;
        if (comparison.verdict === "equal") hearing.beside.equal = equal + 1;
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

/** Some cases' pods are privileged. */
const flags = ["--allow-privileged=true"];
/** Whether its plugin lets others live beside it, and not just refuses everything. */
const isSociable = ({ rule }: Port) => !rule.exemptionRequired;
const pluginOf = ({ rule }: Port) => rule.twin.plugin;
/** Objects of different cases never meet. */
const homeOf = ({ name }: Listed, index: number) => `${name}-${index}`;

/** What some cases have in common: how rules are set up, and what the world answers them. */
interface Setup {
  name: string;
  rules: Record<string, object>;
  needs?: Recorded | undefined;
  /** Of namespaces where the rules are called. */
  labels: Record<string, string>;
  /** Where a mutating half would put right what the validating one is asked about. */
  validatesAlone?: boolean;
}

const everyTwin = "twins";
const keyOf = ({ name, rule }: Listed, entry: Case) =>
  JSON.stringify([name, phaseOf(entry), merge(rule.settings ?? {}, entry.settings), entry.needs]);

const setupsOf = (dockets: Docket[], ports: Port[]): Map<string, Setup> => {
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
        needs: entry.needs,
        labels: labelsFor(listed, settings),
        validatesAlone: phaseOf(entry) === "validate",
      });
    }
  const rules = Object.fromEntries(ports.map(({ name, rule }) => [name, setUp({ ...rule.twin.settings })]));
  return setups.set(everyTwin, { name: everyTwin, rules, labels: {} });
};

const labelsFor = ({ rule: { namespaceSelector } }: Listed, settings: object): Record<string, string> => {
  const selector = typeof namespaceSelector === "function" ? namespaceSelector(settings) : namespaceSelector;
  return (selector && "matchLabels" in selector && selector.matchLabels) || {};
};

/** All setups behind one gateway, as clusters of one postern.yaml. */
const serve = async (setups: Map<string, Setup>, dockets: Docket[], stops: (() => Promise<unknown>)[]) => {
  const folder = await mkdtemp(join(tmpdir(), "postern-cases-"));
  stops.push(() => rm(folder, { recursive: true, force: true }));
  const observer = openObserver();
  const clusters = [...setups.values(), { name: "observer", rules: { observer: {} } }].map(({ name, rules }) => [
    name,
    { rules },
  ]);
  const needs = new Map([...setups.values()].map(({ name, needs }) => [name, needs ?? {}]));
  const served = await serveRules(
    [...dockets.map(({ listed }) => listed), observer.listed],
    JSON.stringify({ clusters: Object.fromEntries(clusters) }),
    {
      certificate: await openCertificate(folder, "127.0.0.1"),
      world: (cluster) => recorded(needs.get(cluster) ?? {}),
    },
  );
  stops.push(served.stop);

  const calledBy = async (admin: Client): Promise<Place> => {
    for (const { name, validatesAlone } of setups.values()) {
      const halves = served
        .manifests({ name, cluster: name })
        .filter(({ kind }) => !validatesAlone || kind === "ValidatingWebhookConfiguration");
      await register(admin, calledAs(name, halves));
    }
    // The API server calls by the order of names: what comes here last is what the others have made of it.
    await register(admin, observer.calledAlways(served.manifests({ name: "z", cluster: "observer" })));

    const place = { admin, observer };
    const path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    const probe = { method: "POST" as const, path, user: { username: "jane" }, name: "probe" };
    const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "probe" } };
    const heard: Heard[] = [];
    await noticed(
      async () => heard.push(await send(place, probe, body)),
      () => heard.some(({ seen }) => seen.mutate && seen.validate),
    );
    return place;
  };
  return { calledBy };
};

type Finding = { reason: string } | { diff?: string; shape: Shape };

/** Whether the API server says with the rule what a case says; and, by asking without the rule, whether it can. */
const judge = async (place: Place, question: Question, setup: string): Promise<Finding> => {
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
  const warnings = [...plain.answer.warnings, ...(entry.warnings ?? [])];
  const becomes = entry.becomes && (await ask(place, question, entry.becomes, shape));
  const [wanted, actual] =
    entry.refused === undefined
      ? [{ ...stored(becomes ?? plain), warnings }, stored(ours)]
      : [refusal(listed, entry, warnings), accepts(ours.answer) ? stored(ours) : refused(ours)];
  if (isDeepStrictEqual(wanted, actual)) return { shape };

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

const denial = (rule: string) => `admission webhook "${rule}.postern.dev" denied the request: `;
const refusal = ({ name }: Listed, entry: Case, warnings: string[]): Comparable => {
  const { refused, code = 403, reason = "Forbidden" } = entry;
  return { code, warnings, body: { reason, message: `${denial(name)}${refused}` } };
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
  if (accepts(answer) ? said !== undefined : answer.body.message !== `${denial(listed.name)}${said}`) return;
  for (const path of addedIn(came.object, entry[phase])) {
    const object = structuredClone(came.object);
    remove(object, path);
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

const remove = (object: unknown, [first = "", ...rest]: Path): void => {
  if (rest.length > 0) remove(Reflect.get(Object(object), first), rest);
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
const bootBeside = async (binaries: Binaries, ports: Port[], dockets: Docket[]): Promise<Cluster | undefined> => {
  const names = ports.map(({ name }) => name);
  const fill = async (as: Cluster["as"]) => {
    for (const { listed, cases } of dockets.filter(({ listed }) => names.includes(listed.name)))
      for (const [index, entry] of cases.entries()) {
        const request = await requestOf(listed, entry, homeOf(listed, index), as("admin"));
        await prepare(as("admin"), request, {});
      }
  };
  const disable = ports.filter(({ rule }) => rule.twin.defaultOn).map(pluginOf);
  if (ports.length === 0) return undefined;
  return bootCluster(binaries, { flags, disable, late: { enable: ports.map(pluginOf), fill } });
};

/** The same to an API server with the plugins and to ours. */
const besideUpstream = async (
  place: Place,
  { admin }: Cluster,
  question: Question,
  shape: Shape,
  setup: string,
): Promise<Comparison & { diff: string }> => {
  const given = question.entry[phaseOf(question.entry)] ?? {};
  const [wanted, actual] = [
    await ask({ admin }, question, given, shape),
    await ask(place, question, given, shape, setup),
  ].map((heard) => comparable(heard, heard.name)) as [Comparable, Comparable];
  return { ...compare(question.listed.name, wanted, actual), diff: diffOf(wanted, actual) };
};
