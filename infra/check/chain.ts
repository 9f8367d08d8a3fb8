import { parseWebhookConfigurations } from "#infra/apiserver/admission/hooks.ts";
import type { CelEvaluator } from "#infra/apiserver/admission/types.ts";
import type { Capabilities, ResourceType } from "#lib/needs.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Manifest } from "../manifests/manifests.ts";
import { createNativeCopyPredicate } from "../webhooks/native-policies.ts";
import type { Tell } from "./evaluation/assumptions.ts";
import { callEndpoint, reviewTime } from "./evaluation/endpoint-calls.ts";
import { noteSecretsRead } from "./evaluation/existing-objects.ts";
import type { ChainOptions, ObjectEvaluationEnvironment } from "./evaluation/object-evaluation.ts";
import { choosePlugins, isTurnedOff, loadCallablePlugins } from "./evaluation/plugins.ts";
import type { UncertainUse } from "./evaluation/quotas.ts";
import { type CallableRules, createCallableClusterRules } from "./evaluation/rule-webhooks.ts";
import {
  createUnevaluatedPolicyMatcher,
  listPolicies,
  listUnboundPolicies,
  policyKinds,
} from "./evaluation/unevaluated.ts";
import { callForeignWebhook } from "./evaluation/webhooks.ts";
import { createQuotaUse } from "./evaluation/workload-quotas.ts";
import { describePoliciesNotEvaluated } from "./notes.ts";

/** What exists beside an object that is evaluated: manifests, or the objects of a cluster. */
interface ObjectSource {
  /** True for the objects of a cluster: each checked object exists, and the cluster answers questions. */
  isLive: boolean;
  /** True if all objects that exist are known. */
  isStateKnown: boolean;
  /** True if the use of quotas is known, or check may assume that only the objects of the manifests use them. */
  isUseKnown: boolean;
  /** The webhook configurations of other programs. */
  foreign: readonly Manifest[];
  /** Returns the functions with which rules, or one plugin, get data such as objects. `tell` gets what isn't known. */
  openCapabilities(tell: Tell, timeLimitMilliseconds: number, plugin?: string): Capabilities;
  /** Returns the admission policies, quotas and definitions of kinds; and the kinds of policies that can't be read. */
  readPolicies(): Promise<{ objects: KubernetesObject[]; unreadable: string[] }>;
  /** The requests that create the objects that exist before the check; absent if only a cluster knows these. */
  creationsBefore?: readonly AdmissionRequest[];
  /** Returns the checked objects of a kind. Webhook entries made from objects in a cluster are made from these, too. */
  listCheckedObjects?(kind: ResourceType): KubernetesObject[];
  /** Returns the requests that create what a namespace contains by now; the use of its quotas is counted from these. */
  listCreations?(namespace: string): readonly AdmissionRequest[];
}

export const createUncertainUse = (): UncertainUse => ({ mayBeLess: new Map(), mayBeMore: new Map() });

/**
 * Assembles what evaluates the objects of a cluster: the rules that are on, the compiled-in plugins and the webhooks of
 * other programs, in the order of the API server's calls.
 */
export const assembleChain = async (options: ChainOptions, source: ObjectSource, note: (sentence: string) => void) => {
  const { catalogue, cluster, plugins: changes } = options;
  const { isLive, isStateKnown, isUseKnown, listCreations } = source;
  const [name, config] = cluster;
  const { kubernetes } = config;
  const secretsRead = new Set<object>();
  const openCapabilities: ObjectSource["openCapabilities"] = (...question) =>
    noteSecretsRead(source.openCapabilities(...question), secretsRead);
  const openForReview = (tell: Tell) => openCapabilities(tell, reviewTime);

  const quotaUse = await createQuotaUse(options, isStateKnown, note);
  await quotaUse?.count(source.creationsBefore ?? [], openForReview);
  const rules = await createCallableClusterRules(options, {
    createCapabilities: (tell, milliseconds, request) => {
      const capabilities = openCapabilities(tell, milliseconds);
      return quotaUse?.replaceLedger(capabilities, tell, isLive ? request : undefined) ?? capabilities;
    },
    listCheckedObjects: source.listCheckedObjects,
  });
  for (const sentence of rules.notes) note(sentence);

  const policies = await source.readPolicies();
  const isNativeCopy = createNativeCopyPredicate(catalogue, config);
  const withoutCopies = policies.objects.filter((object) => !isNativeCopy(object));
  const objects = withoutCopies.filter((object) => !isTurnedOff(changes, object.kind));
  const uncertainUse = createUncertainUse();
  const chosen = choosePlugins(changes, kubernetes, note);
  const unchosenKinds = policyKinds.filter((kind) => !chosen.includes(kind));
  const isOffByOption = (kind: string) => changes[0] === "none" || isTurnedOff(changes, kind);
  const offByOption = listPolicies(withoutCopies, unchosenKinds.filter(isOffByOption));
  for (const sentence of describePoliciesNotEvaluated(offByOption, "of --plugins")) note(sentence);
  const kindsOffByDefault = unchosenKinds.filter((kind) => !isOffByOption(kind));
  const offByDefault = listPolicies(objects, kindsOffByDefault);
  for (const sentence of describePoliciesNotEvaluated(offByDefault, `Kubernetes ${kubernetes} has the plugin off`))
    note(sentence);
  const plugins = await loadCallablePlugins({
    plugins: chosen,
    kubernetes,
    openCapabilities: (plugin, tell) => openCapabilities(tell, reviewTime, plugin),
    objects,
    quotaKnowledge: { isUseKnown, listCreations, uncertainUse },
  });
  const configurations = [...rules.configurations, ...source.foreign.map(({ object }) => object)];
  const { faults, warnings, ...webhooks } = parseWebhookConfigurations(configurations, kubernetes);
  const chain = plugins.insert(webhooks);
  if (!rules.hasRules && chain.mutating.length + chain.validating.length + faults.length === 0)
    throw new Complaint(`no rule is on for cluster "${name}"; postern.yaml says which are, and --rules names others`);
  const entryFaults = rules.configurations.flatMap((configuration) => listEntryFaults(configuration, kubernetes));
  if (entryFaults.length > 0) throw new Complaint(entryFaults.join("\n"));
  if (faults.length > 0) throw new Complaint(faults.map((fault) => `--webhooks: ${fault}`).join("\n"));
  for (const warning of warnings) note(warning);
  const unevaluated = createUnevaluatedPolicyMatcher(objects, isStateKnown, policies.unreadable, plugins.evaluates);
  const hooks = [...webhooks.mutating, ...webhooks.validating];
  const hasConditions = objects.length > 0 || hooks.some(({ matchConditions }) => matchConditions.length > 0);
  const environment = {
    kubernetes,
    chain,
    call: (hook, review, subject) => {
      const target = plugins.findTarget(hook) ?? rules.findTarget(hook);
      return target ? callEndpoint(target, name, review, subject) : callForeignWebhook(hook, review, options.hosts);
    },
    cel: await createConditionEvaluator(rules, isLive || hasConditions),
    getHookName: (hook, message) => rules.findRuleName(hook, message) ?? hook,
    findSuggestion: rules.findSuggestion,
    unevaluatedPolicies: {
      hooks: unevaluated.hooks,
      findMatching: (...request) => [...unevaluated.findMatching(...request), ...rules.unknown],
    },
    uncertainUse,
    alsoPods: options.alsoPods,
  } satisfies Partial<ObjectEvaluationEnvironment>;
  const isRefused = new Set(plugins.refused.map(({ object }) => object));
  const evaluated = listPolicies(objects, chosen).filter((object) => !isRefused.has(object));
  const idle = { refused: plugins.refused, unbound: listUnboundPolicies(evaluated, objects) };
  return { environment, rules, hooks, idle, quotaUse, secretsRead, openForReview };
};

/**
 * Returns why an API server would refuse entries of rules, each with the entry's name, which begins with the rule's.
 */
const listEntryFaults = (configuration: CallableRules["configurations"][number], kubernetes?: string): string[] =>
  parseWebhookConfigurations([configuration], kubernetes).faults.map((fault) =>
    fault.replace(/^.*?webhooks\[(\d+)\]\.?/, (_, index) => `${configuration.webhooks[index]?.name}: `),
  );

/** Returns the evaluator of matchConditions. Loads CEL only if `needsCel`. */
const createConditionEvaluator = async (rules: CallableRules, needsCel: boolean): Promise<CelEvaluator> => {
  if (!needsCel)
    return {
      // CEL isn't needed if only compiled-in plugins of the API server have conditions. All of these ask the cluster's
      // authorizer, which is not known here.
      compile: () => () => ({ unsupported: "only the cluster's authorizer knows whether the user has the right" }),
      createBudget: () => ({ left: 0 }),
    };
  const { celEvaluator } = await import("#infra/apiserver/admission/conditions.ts");
  return {
    createBudget: celEvaluator.createBudget,
    compile: (expression, kubernetes) => {
      const evaluate = celEvaluator.compile(expression, kubernetes);
      if (!rules.isCallSavingCondition(expression)) return evaluate;
      // A condition that only avoids needless calls counts as true if it can't be evaluated.
      return (variables, budget) => {
        const evaluated = evaluate(variables, budget);
        return "unsupported" in evaluated ? { holds: true } : evaluated;
      };
    },
  };
};
