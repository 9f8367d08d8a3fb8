import type { DefaultedWebhookEntry } from "#infra/apiserver/admission/hooks.ts";
import { createAuthorizationAnswers } from "#lib/admission-policies/authorization.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import type { AdmissionRequest, KubernetesObject, Operation } from "#lib/review.ts";
import { describeMinorOutOfRange } from "#lib/since.ts";
import { fillDefaults } from "../../apiserver/defaults/defaults.ts";
import { formatCount, type Progress, type ReportProgress } from "../../cli/progress.ts";
import { parseMinor } from "../../clusters/version.ts";
import { readManifests } from "../../manifests/input.ts";
import { assembleChain, createUncertainUse } from "../chain.ts";
import {
  type ChainOptions,
  noFindings,
  type ObjectEvaluation,
  type ObjectEvaluationEnvironment,
} from "../evaluation/object-evaluation.ts";
import { isTurnedOff } from "../evaluation/plugins.ts";
import { hasBuiltInWorkloadKinds } from "../evaluation/pod-templates.ts";
import { buildCreation } from "../evaluation/requests.ts";
import { isPolicyOrQuota } from "../evaluation/unevaluated.ts";
import { type QuotaUse, workloadQuotaName } from "../evaluation/workload-quotas.ts";
import { describeIdlePolicies } from "../notes.ts";
import type { InputReadFailure } from "../reports/check-report.ts";
import { findPolicyReportVersion } from "../reports/policyreport.ts";
import { type ClusterReadOptions, listPaths, openCluster } from "./cluster.ts";
import type { DiscoveredResource, DiscoveryResult } from "./discovery.ts";
import { openNamespaceCache } from "./namespaces.ts";
import type { ListInterruption, ObjectPage, readListPages } from "./pages.ts";
import { type ApiGet, parseAnswerJson } from "./reader.ts";
import { prepareLiveCheckCapabilities } from "./rule-capabilities.ts";
import { matchesGroupVersion, readClusterKindIndex, selectMatchedResources, toResourceName } from "./selected-kinds.ts";
import { createStoredObjectEvaluator, type ObjectEvaluator } from "./stored-objects.ts";

interface ClusterCheckOptions extends ChainOptions, ClusterReadOptions {
  operation: Operation;
}

/**
 * Prepares an audit of the resources that hooks match, kind by kind. At `signal`, the audit ends with what was
 * evaluated by then. While it runs, these lists grow: what could not be read, the notes, and the Secrets that were
 * read.
 */
export const prepareClusterCheck = async (options: ClusterCheckOptions, signal: AbortSignal) => {
  const { hosts, operation, alsoPods, namespaces: chosen, user } = options;
  const [name, config] = options.cluster;
  const foreign = await readManifests(options.webhooks, "--webhooks");
  const { connection, read, describeAnswer, found, list } = await openCluster(options, signal);
  const notes = new Set<string>();
  const note = (sentence: string) => void notes.add(sentence);
  const kubernetes = config.kubernetes ?? (await readMinor(read, note));
  const unknown = describeMinorOutOfRange(kubernetes);
  if (unknown !== undefined) note(unknown);
  const cluster: ClusterCheckOptions["cluster"] = [name, kubernetes === undefined ? config : { ...config, kubernetes }];
  const chain = await assembleChain(
    { ...options, cluster },
    {
      isLive: true,
      isStateKnown: true,
      isUseKnown: true,
      foreign,
      openCapabilities: prepareLiveCheckCapabilities(name, connection, hosts),
      readPolicies: () =>
        readPoliciesAndQuotas(
          found,
          (resource) => list(resource, resource.namespaced ? chosen : []),
          note,
          (kind) => isTurnedOff(options.plugins, kind),
        ),
    },
    note,
  );
  const { rules, hooks, quotaUse, secretsRead, openForReview } = chain;
  for (const sentence of describeIdlePolicies({ ...chain.idle, unbound: [] })) note(sentence);
  const kinds = await readClusterKindIndex(found, hooks, read);
  const namespaces = openNamespaceCache(read, describeAnswer);
  const environment: ObjectEvaluationEnvironment = {
    ...chain.environment,
    kinds,
    openAuthorizations: () => createAuthorizationAnswers(openForReview(note).may),
    existing: namespaces,
    old: new Map(),
    requestOptions: { operation, user, namespace: "" },
    isStateKnown: false,
    validate: "warn",
    // Objects of a cluster are evaluated one by one: none is created before another.
    uncertainUse: createUncertainUse(),
    namespaceHint: "only a user with the right to read namespaces can see that",
    // Does nothing, because the evaluator itself notes each namespace that can't be read.
    noteMissingNamespace: () => {},
  };
  const evaluator = createStoredObjectEvaluator(environment, namespaces, operation, note);

  /** Counts the workloads of all namespaces, whichever of them are checked. */
  const countWorkloads = async (use: QuotaUse): Promise<string> => {
    const counting = hooks.filter((hook) => rules.findRuleName(hook.name) === workloadQuotaName);
    const { resources } = selectMatchedResources(found, kinds, counting, { operation: "CREATE" });
    let count = 0;
    const listCreations = async function* (): AsyncGenerator<AdmissionRequest> {
      for (const resource of resources)
        for await (const page of list(resource, [])) {
          if (signal.aborted) return;
          if ("broken" in page) {
            use.giveUp(`what uses quotas: ${toResourceName(resource)} could not be read whole: ${page.broken}`);
            continue;
          }
          for (const item of page.items) {
            const { namespace } = item.metadata ?? {};
            if (namespace !== undefined) await namespaces.fetch(namespace);
            yield* buildCreation(fillDefaults(item, kubernetes).object, kinds, user);
            count++;
          }
        }
    };
    await use.count(listCreations(), (tell) => {
      const capabilities = openForReview(tell);
      const get: typeof capabilities.get = async (kind, name, ...more) =>
        namespaces.find(kind, name) ?? capabilities.get(kind, name, ...more);
      return { ...capabilities, get };
    });
    return formatCount(count, "object");
  };
  const { resources: all, notListable } = selectMatchedResources(found, kinds, hooks, { operation, alsoPods });
  const resources = all.filter((resource) => listPaths(resource, chosen).length > 0);
  if (notListable.length > 0) note(`${notListable.map(toResourceName).join(", ")} can't be listed, and are left out`);
  if (resources.length === 0) note(`no rule is about anything that cluster ${name} has`);
  const unreadableInputs = listUnknown(found, hooks, alsoPods);
  const evaluateKind = createKindEvaluator((resource) => list(resource, chosen), evaluator, unreadableInputs, signal);
  return {
    unreadableInputs,
    notes,
    secretsRead,
    reportVersion: findPolicyReportVersion(found.resources),
    /** Passes each evaluation to `take`, and waits until `take` is done. */
    run: async (progress: Progress, take: (evaluation: ObjectEvaluation) => Promise<void>) => {
      if (quotaUse) await progress.step("workloads for quotas", () => countWorkloads(quotaUse));
      for (const resource of resources)
        if (!signal.aborted)
          await progress.step(toResourceName(resource), (tell) => evaluateKind(resource, take, tell));
    },
  };
};

/** Returns the cluster's minor version of Kubernetes; undefined, with a note, if it can't be read. */
const readMinor = async (read: ApiGet, note: (sentence: string) => void): Promise<string | undefined> => {
  const answer = await read("/version");
  const minor = "status" in answer ? parseMinor(parseAnswerJson(answer)) : undefined;
  if (minor === undefined) note("the cluster's version can't be read; rules behave as in the newest Kubernetes");
  return minor;
};

/**
 * Returns a failure for each group and version whose kinds can't be read, if the check needs these kinds: if a hook may
 * match them or, with `alsoPods`, if some are workloads, because the Pods of workloads are checked, too.
 */
const listUnknown = (
  { unknown }: DiscoveryResult,
  hooks: readonly DefaultedWebhookEntry[],
  alsoPods: boolean,
): InputReadFailure[] =>
  unknown.flatMap(({ group, version, why }) => {
    const apiVersion = joinApiVersion({ group, version });
    if (!matchesGroupVersion(hooks, { group, version }) && !(alsoPods && hasBuiltInWorkloadKinds(apiVersion)))
      return [];
    return [createReadFailure({ apiVersion, kind: "" }, `the kinds in ${apiVersion} can't be read: ${why}`)];
  });

/** The number of objects that are evaluated at the same time, since rules may wait for the cluster. */
const concurrency = 8;

/** Returns a function that evaluates all objects of a resource, and returns how many there were and were denied. */
const createKindEvaluator =
  (
    list: (resource: DiscoveredResource) => ReturnType<typeof readListPages>,
    evaluator: ObjectEvaluator,
    unreadableInputs: InputReadFailure[],
    signal: AbortSignal,
  ) =>
  async (
    resource: DiscoveredResource,
    take: (evaluation: ObjectEvaluation) => Promise<void>,
    tell: ReportProgress,
  ): Promise<string> => {
    const apiVersion = joinApiVersion(resource.kind);
    const { kind } = resource.kind;
    const broken: string[] = [];
    let [seen, total, denied] = [0, 0, 0];
    const evaluatePage = async (items: Parameters<ObjectEvaluator>[0][]) => {
      while (items.length > 0 && !signal.aborted) {
        tell(seen, total);
        const some = items.splice(0, concurrency);
        const evaluations = await Promise.all(some.map((item) => evaluator(item, resource)));
        // Evaluated objects are reported, even if a signal stopped the check meanwhile.
        for (const evaluation of evaluations.flat()) {
          if (evaluation.checked.verdict === "denied") denied++;
          await take(evaluation);
        }
        seen += some.length;
      }
    };
    for await (const page of list(resource)) {
      if (signal.aborted) break;
      if ("broken" in page) {
        broken.push(page.broken);
        unreadableInputs.push(
          createReadFailure(
            { apiVersion, kind },
            `${toResourceName(resource)} could not be read whole: ${page.broken}`,
          ),
        );
        continue;
      }
      total = Math.max(total, seen + page.items.length + (page.remaining ?? 0));
      await evaluatePage(page.items);
      if (signal.aborted) break;
    }
    const refused = denied > 0 ? [`${denied} denied`] : [];
    return [formatCount(seen, "object"), ...refused, ...broken.map((why) => `not whole: ${why}`)].join(", ");
  };

/**
 * Returns the failure to read the objects of a kind, or the kinds of a group and version (`kind` is empty). Its
 * sentence is in `fault` for JSON, in `text` for text reports, and in `checked` for reports that list only objects.
 */
const createReadFailure = (about: { apiVersion: string; kind: string }, sentence: string): InputReadFailure => {
  const checked = { ...about, name: "", ...noFindings, verdict: "undecided" as const, undecided: [sentence] };
  return { fault: { ...about, sentence }, text: sentence, checked };
};

const policyAndQuotaKinds = ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "ResourceQuota"];

/** Reads the policies and quotas of a cluster whose plugins aren't off. Kinds that can't be read are `unreadable`. */
const readPoliciesAndQuotas = async (
  { resources, unknown }: DiscoveryResult,
  list: (resource: DiscoveredResource) => AsyncIterable<ObjectPage | ListInterruption>,
  note: (sentence: string) => void,
  isPluginOff: (kind: string) => boolean,
): Promise<{ objects: KubernetesObject[]; unreadable: string[] }> => {
  const objects: KubernetesObject[] = [];
  const unreadable = new Set<string>();
  for (const resource of unknown)
    for (const kind of policyAndQuotaKinds) {
      if (isPluginOff(kind) || !isPolicyOrQuota({ apiVersion: joinApiVersion(resource), kind })) continue;
      note(`it is unknown whether there is a ${kind}: ${resource.why}`);
      unreadable.add(kind);
    }
  const seen = new Set<string>();
  for (const resource of resources) {
    const { kind } = resource.kind;
    const apiVersion = joinApiVersion(resource.kind);
    // Each policy kind is read in one version only: the first, because discovery lists the preferred version first.
    if (!isPolicyOrQuota({ apiVersion, kind }) || isPluginOff(kind) || seen.has(kind)) continue;
    seen.add(kind);
    for await (const page of list(resource))
      if ("items" in page) objects.push(...page.items);
      else {
        note(`${toResourceName(resource)} could not be read whole, and may match any request: ${page.broken}`);
        // A policy is unreadable without its bindings: they say what it matches.
        unreadable.add(kind.replace(/Binding$/, ""));
      }
  }
  return { objects, unreadable: [...unreadable].sort() };
};
