import { AsyncLocalStorage } from "node:async_hooks";
import type { Context } from "aws-lambda";
import type { Hook } from "#infra/apiserver/admission/hooks.ts";
import type { Called, Sent, Step } from "#infra/apiserver/admission/types.ts";
import type { Resource, World } from "#lib/needs.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { inPhase, variantsOf } from "#lib/rule.ts";
import type { Broken, Listed } from "../../catalogue/registry.ts";
import { requireRules } from "../../catalogue/rule-names.ts";
import { asVariant } from "../../catalogue/variants.ts";
import { Complaint } from "../../cli/complaint.ts";
import { findInspectingRules, inspectCluster } from "../../clusters/inspection.ts";
import type { Cluster, Config } from "../../config/config.ts";
import { servedRules } from "../../project/served.ts";
import type { Handler } from "../../serve/gateway.ts";
import { handlerOf } from "../../serve/handlers.ts";
import { configurations, ruleOf } from "../../webhooks/configurations.ts";
import { oneLine } from "../../webhooks/entry.ts";
import type { Path } from "../manifests/manifests.ts";
import { suggestFix } from "./suggestions.ts";

/** The rules that are on in a cluster, as its API server would know them. */
export interface Rules {
  configurations: object[];
  /** Asks one of them; undefined for a hook that is somebody else's. */
  call(hook: Hook, review: Sent): Promise<Called> | undefined;
  /** The rule of a hook; of a group, the member that speaks. */
  nameOf(hook: string, message?: string): string | undefined;
  /** What a rule suggests that refused in this step, where it can say; `at` is where the object stands in its manifest. */
  suggestionOf(rule: string, step: Step, at: Path): Promise<string | undefined>;
  /** Whether a condition only saves calls: whoever can't evaluate it may make the call, and hears the same. */
  isSparing(expression: string): boolean;
  /** Whether there are any, though they may be called for nothing. */
  isAny: boolean;
  /** Those that asked what exists, so far. */
  asking: ReadonlySet<string>;
  notes: string[];
}

/** Nobody answers there; what is sent there is decided here. */
const here = "https://rules.postern.invalid";

/** A cluster with these rules alone: as postern.yaml sets them up or, where it doesn't name one, by their defaults. */
export const selectRules = (
  cluster: Cluster,
  names: readonly string[],
  catalogue: Listed[],
  broken: readonly Broken[] = [],
): Cluster => {
  const known = [...catalogue, ...broken].map(({ name }) => name);
  const chosen = names.flatMap((name) => {
    const members = cluster.groups.find((group) => group.name === name)?.members.map((member) => member.name);
    return members ?? requireRules([name], known);
  });
  const rules = chosen.map((name) => {
    const rule = catalogue.find((listed) => listed.name === name)?.rule;
    const setup = cluster.rules.get(name);
    if (setup !== undefined && setup.mode !== "off") return [name, setup] as const;
    const settings = setup?.settings ?? rule?.settings ?? {};
    const unfit = rule?.checkSettings?.(settings);
    if (unfit !== undefined) throw new Complaint(`${name} can't do without settings in postern.yaml: ${unfit}`);
    return [name, { ...setup, mode: "enforce" as const, settings }] as const;
  });
  return { ...cluster, rules: new Map(rules) };
};

/** The rules of one cluster, asked in this process. Entries follow from what will come, too, of kinds that rules survey. */
export const openRules = async (
  catalogue: Listed[],
  [clusterName, cluster]: [string, Cluster],
  harden: boolean,
  worldOf: (tell: (sentence: string) => void, milliseconds: number) => World,
  coming: (kind: Resource) => KubernetesObject[] = () => [],
): Promise<Rules> => {
  const answers = new AsyncLocalStorage<string[]>();
  // Each review has its own capabilities, for it begins and ends in time.
  const world = (milliseconds: number) => worldOf((sentence) => answers.getStore()?.push(sentence), milliseconds);
  /** Runs what may ask the cluster; `unsupported` is a sentence about the first question without an answer. */
  const tell = async <T>(run: () => Promise<T>): Promise<{ found: T; unsupported: string | undefined }> => {
    const sentences: string[] = [];
    const found = await answers.run(sentences, run);
    return { found, unsupported: sentences[0] };
  };
  const asking = new Set(findInspectingRules(catalogue, cluster).map(({ name }) => name));
  const handlers = openHandlers(catalogue, [clusterName, cluster], world, (name) => void asking.add(name));

  const asked = await inspectCluster(catalogue, cluster, async () => {
    const { list, discover } = world(surveyTime);
    return { list: async (kind, ...rest) => [...(await list(kind, ...rest)), ...coming(kind)], discover };
  });
  const slow: string[] = [];
  const entries = configurations(catalogue, asked.cluster, {
    name: "postern",
    address: (rule, path) => `${here}/${rule}/${path}`,
    harden,
    // It does no harm here, but where these entries should go.
    slow: (sentence) => slow.push(`${sentence}; postern manifests refuses that`),
  });
  const webhooks = new Map(entries.flatMap((entry) => entry.webhooks).map((one) => [one.name, one]));
  const sparing = new Set([
    ...catalogue.flatMap((listed) => conditionsOf(listed, asked.cluster)),
    // Members look once more at what their groups' entries ask.
    ...[...webhooks.values()]
      .flatMap(({ matchConditions = [] }) => matchConditions)
      .flatMap(({ name, expression }) => (name === "concerns-a-member" ? [expression] : [])),
  ]);

  const call = async (url: string, review: Sent): Promise<Called> => {
    const { name, phase, variant } = partsOf(url);
    const event = { phase, ...(variant !== undefined && { variant }), cluster: clusterName, review };
    const { found, unsupported } = await tell(async () => handlers.get(name)?.(event, context));
    if (unsupported !== undefined) return { unsupported };
    // Our own faults are nothing that a cluster's failurePolicy should wave through unseen.
    return Object(found).kind === "AdmissionReview" ? { body: found } : { unsupported: String(Object(found).message) };
  };
  const suggestionOf = async (name: string, { hook, phase, request }: Step, at: Path) => {
    const rule = catalogue.find((listed) => listed.name === name)?.rule;
    const setup = cluster.rules.get(name);
    const webhook = webhooks.get(hook);
    if (!rule?.suggest || !setup || !request || !webhook) return undefined;
    const { variant } = partsOf(webhook.clientConfig.url);
    const { rule: facet, settings } = asVariant(rule, setup.settings, variant);
    const around = { name, settings, variant, now: new Date() };
    // Where the cluster doesn't answer, there is no suggestion.
    const { found, unsupported } = await tell(async () =>
      suggestFix(facet, phase, request, { ...around, world: rule.needs && world(patience) }, at),
    ).catch(() => ({ found: undefined, unsupported: undefined }));
    return unsupported !== undefined || found?.isVain ? undefined : found?.text;
  };
  return {
    configurations: entries,
    suggestionOf,
    call: ({ clientConfig: { url = "" } }, review) => (url.startsWith(`${here}/`) ? call(url, review) : undefined),
    nameOf: (hook, message = "") => {
      const webhook = webhooks.get(hook);
      const name = webhook && ruleOf(webhook);
      const members = cluster.groups.find((group) => group.name === name)?.members ?? [];
      return members.find((member) => message.startsWith(`${member.name}: `))?.name ?? name;
    },
    isSparing: (expression) => sparing.has(expression),
    isAny: handlers.size > 0,
    asking,
    notes: [...asked.notes, ...slow, ...(entries.length === 0 ? describeIdle([...handlers.keys()]) : [])],
  };
};

/** Opens the handlers of the rules that are on; `asks` hears the name of each that asks what exists. */
const openHandlers = (
  catalogue: Listed[],
  [clusterName, cluster]: [string, Cluster],
  world: (milliseconds: number) => World,
  asks: (name: string) => void,
): Map<string, Handler> => {
  const config: Config = { clusters: new Map([[clusterName, cluster]]), groups: cluster.groups };
  return new Map(
    servedRules(config, catalogue).map((listed) => {
      const own = (_: string, milliseconds: number) => watchReads(world(milliseconds), () => asks(listed.name));
      return [listed.name, handlerOf(config, listed, { publicKeys: "", world: own, journal: () => {} })];
    }),
  );
};

/** Returns capabilities that call `asked` when a rule asks what exists. */
const watchReads = (world: World, asked: () => void): World => {
  const watch =
    <A extends unknown[], R>(ask: (...args: A) => R) =>
    (...args: A): R => {
      asked();
      return ask(...args);
    };
  return { ...world, get: watch(world.get), list: watch(world.list), create: watch(world.create) };
};

const describeIdle = (names: readonly string[]): string[] => {
  if (names.length === 0) return [];
  const is = names.length === 1 ? "is" : "are";
  return [
    `${names.join(", ")} ${is} called for nothing, as far as is known; that follows from what exists, which --state says`,
  ];
};

/** What an address says of a call. */
const partsOf = (url = "") => {
  const [name = "", phase, variant] = url.slice(here.length + 1).split("/");
  return { name, phase, variant };
};

/** The conditions of a rule's entries, without those that decide. */
const conditionsOf = ({ name, rule, phases }: Listed, { rules }: Cluster): string[] => {
  const setup = rules.get(name);
  if (setup === undefined || setup.mode === "off") return [];
  const variants = variantsOf(rule, setup.settings)?.map((variant) => variant.name) ?? [undefined];
  return variants.flatMap((variant) => {
    const facet = asVariant(rule, setup.settings, variant);
    return phases.flatMap((phase) => {
      const conditions = inPhase(facet.rule.matchConditions, phase, facet.settings) ?? {};
      const deciding = inPhase(facet.rule.authorizedBy, phase, facet.settings) ?? {};
      return Object.entries(conditions).flatMap(([name, text]) =>
        Object.hasOwn(deciding, name) ? [] : [oneLine(text)],
      );
    });
  });
};

const patience = 30_000;
/** In milliseconds: all policies of a large cluster may be read for one. */
const surveyTime = 120_000;
// Endpoints look at no more of it.
const context = {
  functionName: "check",
  functionVersion: "local",
  getRemainingTimeInMillis: () => patience,
} as Context;
