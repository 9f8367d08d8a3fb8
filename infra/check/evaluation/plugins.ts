import type { DefaultedWebhookEntry, WebhookEntriesByPhase } from "#infra/apiserver/admission/hooks.ts";
import type { HookCallResult, ReviewToSend } from "#infra/apiserver/admission/types.ts";
import { evaluateRule } from "#lib/evaluation.ts";
import { getErrorMessage } from "#lib/failure.ts";
import type { Capabilities } from "#lib/needs.ts";
import { buildReviewResponse } from "#lib/review.ts";
import { type Phase, selectPhase } from "#lib/rule.ts";
import { type CatalogueRule, loadRules } from "../../catalogue/registry.ts";
import { findRuleByNameOrPlugin } from "../../catalogue/rule-names.ts";
import { listRuleFolders, posternCatalogue, resolveCatalogue } from "../../catalogue/sources.ts";
import { compiledInPlugins, isEffectiveByDefault } from "../../catalogue/upstream-plugins.ts";
import { Complaint } from "../../cli/complaint.ts";
import { formatDidYouMean } from "../../cli/did-you-mean.ts";
import { joinCelExpressionLines } from "../../webhooks/entry.ts";
import { roundIntegers } from "./rounding.ts";

/** The compiled-in plugins of an API server, in the form of webhook entries that are evaluated by the plugins' ports. */
export interface CallablePlugins {
  /** Returns the entries of plugins and webhooks in the order in which an API server calls them. */
  insert(webhooks: AdmissionChain): AdmissionChain;
  /** Evaluates a plugin; returns undefined for a hook that is none. */
  call(hook: DefaultedWebhookEntry, review: ReviewToSend): Promise<HookCallResult> | undefined;
}

export type AdmissionChain = Pick<WebhookEntriesByPhase, "mutating" | "validating">;

/** Plugins that the check itself does the work of, or whose objects it only matches. */
const notCalled = [
  ...["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"],
  ...["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy", "ResourceQuota"],
];

/**
 * Returns the names of the plugins that an API server of a minor version has on. `changes` are names to turn on and,
 * with a hyphen before them, names to turn off; `none` alone turns off all.
 */
export const choosePlugins = (changes: readonly string[], kubernetes?: string): string[] => {
  const known = Object.keys(compiledInPlugins);
  const names = changes.map((change) => change.replace(/^-/, ""));
  const unknown = names.find((name) => !known.includes(name) && !(name === "none" && changes.length === 1));
  if (unknown !== undefined)
    throw new Complaint(
      `--plugins: kube-apiserver has no plugin "${unknown}"; ${formatDidYouMean(unknown, known)}functions/README.md lists them`,
    );
  if (changes[0] === "none") return [];
  const isOn = (name: string) =>
    !changes.includes(`-${name}`) && (changes.includes(name) || isEffectiveByDefault(name, kubernetes));
  return known.filter((name) => isOn(name) && !notCalled.includes(name));
};

/** Loads the ports of plugins, which answer with what `openCapabilities` gives them. */
export const loadCallablePlugins = async (
  plugins: readonly string[],
  kubernetes: string | undefined,
  openCapabilities: (plugin: string, tell: (sentence: string) => void) => Capabilities,
): Promise<CallablePlugins> => {
  const folders = await listRuleFolders([await resolveCatalogue(posternCatalogue)]);
  const names = folders.map(({ name }) => name);
  const wanted = new Map(plugins.map((plugin) => [findRuleByNameOrPlugin(plugin, names), plugin]));
  const { rules, broken } = await loadRules(folders.filter(({ name }) => wanted.has(name)));
  if (broken[0]) throw new Complaint(broken[0].sentence);
  const ports = new Map(rules.map((listed) => [wanted.get(listed.name) ?? "", listed]));
  const listEntries = (phase: Phase) =>
    [...ports].flatMap(([plugin, port]) => (port.phases.includes(phase) ? [toEntry(plugin, port, phase)] : []));
  const isBefore = ({ name }: DefaultedWebhookEntry) =>
    order.indexOf(name) < order.indexOf("ValidatingAdmissionWebhook");
  const [mutators, validators] = [listEntries("mutate"), listEntries("validate")];

  const call = async (
    { name, phase }: DefaultedWebhookEntry,
    { rule }: CatalogueRule,
    { request }: ReviewToSend,
  ): Promise<HookCallResult> => {
    const sentences: string[] = [];
    const capabilities = rule.needs && openCapabilities(name, (sentence) => void sentences.push(sentence));
    const context = { name, mode: "enforce" as const, settings: getSettings(rule), kubernetes, now: new Date() };
    try {
      const { outcome } = await evaluateRule(rule, phase, roundIntegers(request), { ...context, capabilities });
      if (sentences[0] === undefined) return { body: buildReviewResponse({ version: "v1", request }, outcome) };
    } catch (error) {
      sentences.push(getErrorMessage(error));
    }
    return { unsupported: String(sentences[0]) };
  };
  return {
    insert: ({ mutating, validating }) => ({
      mutating: [...mutators.filter(isBefore), ...mutating, ...mutators.filter((hook) => !isBefore(hook))],
      validating: [...validators.filter(isBefore), ...validating, ...validators.filter((hook) => !isBefore(hook))],
    }),
    call: (hook, review) => {
      const port = hook.isPlugin && ports.get(hook.name);
      return port ? call(hook, port, review) : undefined;
    },
  };
};

const order = Object.keys(compiledInPlugins);

const getSettings = ({ settings, upstreamPlugin }: CatalogueRule["rule"]) => ({
  ...settings,
  ...upstreamPlugin?.settings,
});

/** Returns the entry of a plugin. Of its port's conditions it has those that decide, not those that only save calls. */
const toEntry = (plugin: string, { rule }: CatalogueRule, phase: Phase): DefaultedWebhookEntry => {
  const settings = getSettings(rule);
  const conditions = Object.entries(selectPhase(rule.authorizedBy, phase, settings) ?? {});
  return {
    isPlugin: true,
    phase,
    name: plugin,
    configuration: "kube-apiserver",
    identity: plugin,
    rules: (selectPhase(rule.match, phase, settings) ?? []).map((match) => ({ scope: "*", ...match })),
    failurePolicy: "Fail",
    matchPolicy: rule.matchPolicy ?? "Equivalent",
    reinvocationPolicy: "Never",
    namespaceSelector: {},
    objectSelector: {},
    matchConditions: conditions.map(([name, text]) => ({ name, expression: joinCelExpressionLines(text) })),
    sideEffects: "None",
    timeoutSeconds: 30,
    admissionReviewVersions: ["v1"],
    clientConfig: {},
  };
};
