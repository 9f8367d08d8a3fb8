import type { DefaultedWebhookEntry, WebhookEntriesByPhase } from "#infra/apiserver/admission/hooks.ts";
import { createEndpoint, type EndpointConfig } from "#lib/core/endpoint.ts";
import { type EvaluateRequest, evaluateRule } from "#lib/core/evaluation.ts";
import { getOwn } from "#lib/json.ts";
import type { Capabilities } from "#lib/needs.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { getVariants, type ParsedManifests, type Phase, type Rule, type RuleVariant, selectPhase } from "#lib/rule.ts";
import { newestKubernetes } from "#lib/since.ts";
import { applyVariant, loadRules } from "../../catalogue/registry.ts";
import { findRuleByNameOrPlugin } from "../../catalogue/rule-names.ts";
import { listRuleFolders, posternCatalogue, resolveCatalogue } from "../../catalogue/sources.ts";
import { compiledInPlugins, isCompiledIn, isEffectiveByDefault } from "../../catalogue/upstream-plugins.ts";
import { Complaint } from "../../cli/complaint.ts";
import { formatDidYouMean } from "../../cli/did-you-mean.ts";
import type { FieldPath } from "../../manifests/manifests.ts";
import { joinCelExpressionLines } from "../../webhooks/entry.ts";
import type { Tell } from "./assumptions.ts";
import { checkHost, type EndpointTarget } from "./endpoint-calls.ts";
import { createLimitsEvaluation } from "./limits.ts";
import { createQuotaEvaluation, type QuotaKnowledge } from "./quotas.ts";

export type AdmissionChain = Pick<WebhookEntriesByPhase, "mutating" | "validating">;

/** The plugins that call webhooks. The check calls the webhooks and rules itself. */
const webhookPlugins = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

/**
 * Returns the names of the plugins that an API server of a minor version has on. `changes` are names to turn on and,
 * with a hyphen before them, names to turn off; `none` alone turns off all. Throws where kube-apiserver would refuse
 * these flags.
 */
export const choosePlugins = (
  changes: readonly string[],
  kubernetes: string | undefined,
  note: (sentence: string) => void,
): string[] => {
  if (changes.length === 1 && changes[0] === "none") return [];
  const known = Object.keys(compiledInPlugins);
  const minor = kubernetes ?? newestKubernetes;
  for (const change of changes) {
    const name = change.replace(/^-/, "");
    const { gate } = compiledInPlugins[name] ?? {};
    if (change === "none") throw new Complaint("--plugins: none turns all plugins off, so it must be the only value");
    if (!known.includes(name))
      throw new Complaint(
        `--plugins: kube-apiserver has no plugin "${name}"; ${formatDidYouMean(name, known)}functions/README.md lists them`,
      );
    if (!isCompiledIn(name, kubernetes))
      throw new Complaint(`--plugins: kube-apiserver ${minor} has no plugin "${name}"`);
    if (change !== name && webhookPlugins.includes(name))
      throw new Complaint(
        `--plugins: ${name} can't be turned off, because it calls rules and webhooks; --rules and --webhooks say which`,
      );
    if (change !== name && changes.includes(name)) throw new Complaint(`--plugins turns ${name} both on and off`);
    if (change === name && gate && !isEffectiveByDefault(name, kubernetes))
      note(`${name} does nothing in Kubernetes ${minor}, where the feature gate ${gate.name} is off`);
  }
  const isOn = (name: string) =>
    !isTurnedOff(changes, name) &&
    (isEffectiveByDefault(name, kubernetes) || (changes.includes(name) && !compiledInPlugins[name]?.gate));
  return known.filter((name) => isOn(name) && !webhookPlugins.includes(name));
};

/** Reports whether `--plugins` turns a plugin off by its name, or that of the policies or quotas of a kind. */
export const isTurnedOff = (changes: readonly string[], kind: string | undefined): boolean =>
  changes.includes(`-${kind?.replace(/Binding$/, "")}`);

/** How the rules that reimplement plugins are loaded, and what these rules know of the cluster. */
interface PluginsOptions {
  plugins: readonly string[];
  kubernetes: string | undefined;
  /** Opens what answers the questions of a plugin's rule; `reportUnknown` gets each question without an answer. */
  openCapabilities(plugin: string, reportUnknown: Tell): Capabilities;
  /** The admission policies of the cluster with their bindings, its quotas and its CustomResourceDefinitions. */
  objects: readonly KubernetesObject[];
  quotaKnowledge: QuotaKnowledge;
}

/** Loads the compiled-in plugins of an API server as webhook entries, which call the rules that reimplement them. */
export const loadCallablePlugins = async ({
  plugins,
  kubernetes,
  openCapabilities,
  objects,
  quotaKnowledge,
}: PluginsOptions) => {
  const folders = await listRuleFolders([await resolveCatalogue(posternCatalogue)]);
  const names = folders.map(({ name }) => name);
  const ownQuotas = objects.filter(({ kind }) => kind === quotaPlugin);
  // Where the plugin isn't evaluated, quotas are known to count an object.
  const called = plugins.includes(quotaPlugin) || ownQuotas.length === 0 ? plugins : [...plugins, quotaPlugin];
  const isUseKnown = plugins.includes(quotaPlugin) && quotaKnowledge.isUseKnown;
  const wanted = new Map(called.map((plugin) => [findRuleByNameOrPlugin(plugin, names), plugin]));
  const { rules, broken } = await loadRules(folders.filter(({ name }) => wanted.has(name)));
  if (broken[0]) throw new Complaint(broken[0].sentence);
  const evaluated = new Set<KubernetesObject>();
  const refused: RefusedPolicy[] = [];
  const targets = new Map<DefaultedWebhookEntry, EndpointTarget>();
  /** How the reviews of some plugins are evaluated, by what answers their questions. */
  const evaluations = new WeakMap<Capabilities, EvaluateRequest>();
  for (const { name, phases, rule } of rules) {
    const plugin = wanted.get(name) ?? "";
    const read = readPolicies(plugin, rule, objects, kubernetes);
    for (const object of read.accepted) evaluated.add(object);
    for (const policy of read.refused) refused.push(policy);
    const settings = { ...rule.settings, ...rule.upstreamPlugin?.settings, ...read.settings };
    // The settings of policies are complete without any.
    if (rule.manifests === undefined && rule.checkSettings?.(settings) !== undefined)
      throw new Complaint(
        `--plugins: ${plugin} does not start without a configuration; its rule ${name} can have one in postern.yaml`,
      );
    rule.compileExpressions?.(settings, kubernetes);
    const needsNoServerFields =
      !plugin.endsWith("AdmissionPolicy") && (plugin !== quotaPlugin || ownQuotas.length === 0);
    // A policy has an entry of its own, with its selectors; other variants would only save calls.
    const policies = read.accepted.length > 0 ? getVariants(rule, settings) : undefined;
    for (const { name: variant, native } of policies ?? [{ name: undefined, native: undefined }]) {
      const policy = native?.policy.metadata.name;
      const pluginRule = { ...applyVariant(rule, settings, variant), variant, policy };
      const config = buildPluginConfig(plugin, pluginRule.settings, kubernetes);
      const endpoint = createEndpoint(pluginRule.rule, config, checkHost, (...question) => {
        const [, , , { capabilities }] = question;
        const evaluate = capabilities && evaluations.get(capabilities);
        return (evaluate ?? evaluateRule)(...question);
      });
      const open: EndpointTarget["open"] = (tell, _, subject) => {
        const capabilities = rule.needs && openCapabilities(plugin, tell);
        if (capabilities && plugin === quotaPlugin) {
          const knowledge = { ...quotaKnowledge, isUseKnown, quotas: ownQuotas, subject, tell };
          evaluations.set(capabilities, createQuotaEvaluation(knowledge));
        }
        if (capabilities && plugin === "LimitRanger") evaluations.set(capabilities, createLimitsEvaluation(tell));
        return { endpoint, capabilities };
      };
      for (const phase of phases)
        targets.set(buildEntry(plugin, pluginRule, phase), {
          phase,
          variant,
          needsExactIntegers: rule.exactIntegers === true,
          needsNoServerFields,
          open,
        });
    }
  }

  const getOrder = (name: string) => Object.keys(compiledInPlugins).indexOf(name);
  const insert = (phase: Phase, webhooks: readonly DefaultedWebhookEntry[], name: string) => {
    const entries = [...targets.keys()].filter((entry) => entry.phase === phase);
    const isBefore = (entry: DefaultedWebhookEntry) => getOrder(entry.name) < getOrder(name);
    return [...entries.filter(isBefore), ...webhooks, ...entries.filter((entry) => !isBefore(entry))];
  };
  return {
    /** Returns the entries of plugins and webhooks in the order in which an API server calls them. */
    insert: ({ mutating, validating }: AdmissionChain): AdmissionChain => ({
      mutating: insert("mutate", mutating, "MutatingAdmissionWebhook"),
      validating: insert("validate", validating, "ValidatingAdmissionWebhook"),
    }),
    /** The policies and bindings that no plugin evaluates, although it is on. */
    refused,
    /** Reports whether a plugin evaluates an object: a policy or a binding of one. */
    evaluates: (object: KubernetesObject) => evaluated.has(object),
    /** Returns what a plugin's entry calls; undefined for other entries. */
    findTarget: (hook: DefaultedWebhookEntry) => targets.get(hook),
  };
};

/** Returns the config of a plugin's endpoint, in which every cluster has the same settings. */
const buildPluginConfig = (rule: string, settings: object, kubernetes: string | undefined): EndpointConfig => ({
  rule,
  usual: { keyVersions: [], mode: "enforce", settings, ...(kubernetes !== undefined && { kubernetes }) },
  clusters: {},
});

/** The name of a kind and of the plugin that enforces it. */
const quotaPlugin = "ResourceQuota";

/** The rule that reimplements a plugin; for a plugin of policies, with one policy as its variant. */
type PluginRule = ReturnType<typeof applyVariant> & { variant: string | undefined; policy: string | undefined };

/** A policy or a binding that can't be evaluated: why, after "because", and the field that is the cause. */
export interface RefusedPolicy {
  object: KubernetesObject;
  reason: string;
  path: FieldPath;
}

/**
 * Reads the policies and bindings of a plugin as `settings` of the plugin's rule. Objects that check can't evaluate,
 * or that an API server of the version `kubernetes` (such as "1.34") would refuse, are returned in `refused` instead.
 */
const readPolicies = (
  plugin: string,
  rule: Rule,
  objects: readonly KubernetesObject[],
  kubernetes: string | undefined,
) => {
  const { manifests, settings, checkSettings } = rule;
  // A rule's `manifests` has, by the name of a setting, the function that reads the setting's value from objects.
  const read = getOwn(manifests, "policies") as PolicyReader | undefined;
  const own = objects.filter(({ kind }) => kind === plugin || kind === `${plugin}Binding`);
  if (!read || own.length === 0) return { accepted: [], refused: [], settings: {} };
  // By the schemas of custom kinds, mutating policies merge their ApplyConfigurations into objects.
  const isSchema = (object: KubernetesObject) =>
    object.kind === "CustomResourceDefinition" && read([object]).faults.length === 0;
  const schemas = objects.filter(isSchema);
  const toSettings = (accepted: readonly KubernetesObject[]) => ({ policies: read([...schemas, ...accepted]).objects });
  const findRefusal = (object: KubernetesObject): Omit<RefusedPolicy, "object"> | undefined => {
    if (object.apiVersion !== policyVersion)
      return { reason: `check reads those of ${policyVersion}, not of ${object.apiVersion}`, path: ["apiVersion"] };
    const [fault] = read([object]).faults;
    if (fault !== undefined) {
      const { sentence, path } = typeof fault === "string" ? { sentence: fault, path: [] } : fault;
      return { reason: `an API server would refuse it: ${cutPrefix(sentence, object)}`, path };
    }
    // These settings have no other policy, so each fault in them is a fault of this policy.
    const settingsOfOne = { ...settings, ...toSettings([object]) };
    // The only possible fault is "must have the CustomResourceDefinition … among its policies".
    const missing = checkSettings?.(settingsOfOne)?.replace(" among its policies", "");
    if (missing !== undefined) return { reason: `check ${missing}`, path: [] };
    // The rule has a variant for each policy. There, `native` is the policy, which an API server evaluates by itself.
    const listExpressionFaults = ({ native }: RuleVariant<object>) =>
      (kubernetes !== undefined && native?.findExpressionFault(kubernetes)) || [];
    const [error] = getVariants(rule, settingsOfOne)?.flatMap(listExpressionFaults) ?? [];
    return error === undefined
      ? undefined
      : { reason: `Kubernetes ${kubernetes} would refuse it: ${error}`, path: ["spec"] };
  };
  const accepted: KubernetesObject[] = [];
  const refused: RefusedPolicy[] = [];
  for (const object of own) {
    const refusal = findRefusal(object);
    if (refusal === undefined) accepted.push(object);
    else refused.push({ object, ...refusal });
  }
  return { accepted, refused, settings: toSettings(accepted) };
};

const policyVersion = "admissionregistration.k8s.io/v1";

/** Returns the first line of a fault, without the object's kind and name, with which it begins. */
const cutPrefix = (sentence: string, { kind, metadata }: KubernetesObject): string =>
  sentence.slice(`${kind} ${metadata?.name ?? ""}`.trim().length + 2).split("\n", 1)[0] ?? "";

type PolicyReader = (documents: readonly unknown[]) => ParsedManifests;

/**
 * Returns the entry of a plugin. Of the conditions of its rule, it has only those of `authorizedBy`, which ask the
 * authorizer and change the outcome. The rule's matchConditions are left out: they only avoid needless calls.
 */
const buildEntry = (
  plugin: string,
  { rule, settings, variant, policy }: PluginRule,
  phase: Phase,
): DefaultedWebhookEntry => {
  const conditions = Object.entries(selectPhase(rule.authorizedBy, phase, settings) ?? {});
  const select = (selector: Rule["namespaceSelector"]) =>
    (typeof selector === "function" ? selector(settings) : selector) ?? {};
  return {
    isPlugin: true,
    ...(policy !== undefined && { policy }),
    phase,
    name: plugin,
    configuration: "kube-apiserver",
    identity: `${plugin}/${variant ?? ""}`,
    rules: (selectPhase(rule.match, phase, settings) ?? []).map((match) => ({ scope: "*", ...match })),
    failurePolicy: "Fail",
    matchPolicy: rule.matchPolicy ?? "Equivalent",
    // A variant is one policy, which is called again only after a change. Other plugins are always called again.
    reinvocationPolicy: rule.reinvocationPolicy ?? (variant === undefined ? "Always" : "IfNeeded"),
    namespaceSelector: select(rule.namespaceSelector),
    objectSelector: select(rule.objectSelector),
    matchConditions: conditions.map(([name, text]) => ({ name, expression: joinCelExpressionLines(text) })),
    sideEffects: "None",
    timeoutSeconds: 30,
    admissionReviewVersions: ["v1"],
    clientConfig: {},
  };
};
