import { toList, toMap } from "postern/json";
import type { Pod } from "postern/kubernetes/core/v1";
import { get, http, ledger } from "postern/needs";
import { rule } from "postern/rule";
import { askPodWhetherFinished, startCleanUp } from "./clean-up.ts";
import { findPodUrlTemplateFault, parseNetwork } from "./pod-address.ts";
import {
  areDifferentPods,
  type DeletionGuardSettings,
  describeFinishSettings,
  isFinished,
  isMarkedAndNotBeingDeleted,
  isRunningOnNode,
  mayForceDeletion,
} from "./pod-state.ts";

/** The default settings. An empty text turns a setting off. `finished.check` and `cleanUp` are URLs. */
const settings: DeletionGuardSettings = {
  mark: { label: "deletion-guard.postern.dev/cleans-up", annotation: "" },
  finished: { annotation: "deletion-guard.postern.dev/finished", condition: "", check: "" },
  cleanUp: "",
  addresses: [], // the networks in which the rule may call pods, such as 10.0.0.0/8
  ca: "", // the certificates in PEM that these calls trust, if Node's own roots are not enough
  force: { users: ["system:serviceaccount:kube-system:pod-garbage-collector"], groups: [] },
  endingNamespaces: false, // true also guards pods of a namespace that is being deleted
};

export default rule({
  summary: "Refuses to delete or evict pods that must clean up first, and starts their clean-up.",
  match: [
    { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["DELETE"] },
    { apiGroups: [""], apiVersions: ["v1"], resources: ["pods/eviction"], operations: ["CREATE"] },
  ],
  matchConditions: ({ mark }: DeletionGuardSettings) => ({
    // The review of an eviction doesn't contain the pod, so the rule is called for every eviction.
    "is-marked-and-not-going": `request.?subResource.orValue("") == "eviction" || oldObject == null ||
      (!has(oldObject.metadata.deletionTimestamp) && (${buildMarkCondition("labels", mark.label)} || ${buildMarkCondition("annotations", mark.annotation)}))`,
  }),
  sideEffects: "NoneOnDryRun",
  timeoutSeconds: 5,
  settings,
  checkSettings({ mark, finished, cleanUp, addresses, ca }) {
    if (mark.label === "" && mark.annotation === "") return "must have a label or an annotation as mark";
    if (Object.values(finished).every((text) => text === ""))
      return "must have an annotation, a condition or a check that says when a pod is finished";
    for (const [name, template] of Object.entries({ cleanUp, "finished.check": finished.check })) {
      const fault = template === "" ? undefined : findPodUrlTemplateFault(template);
      if (fault) return `must have ${fault} as ${name}, not "${template}"`;
      if (template.includes("{ip}") && addresses.length === 0)
        return `must list networks under addresses, because ${name} calls pods`;
    }
    const wrong = addresses.find((text) => typeof text !== "string" || parseNetwork(text) === undefined);
    if (wrong !== undefined)
      return `must have networks such as 10.0.0.0/8 or fd00::/8 as addresses, not ${JSON.stringify(wrong)}`;
    if (ca !== "" && !ca.includes("-----BEGIN CERTIFICATE-----"))
      return "must have a certificate in PEM as ca, or nothing";
  },
  needs: {
    // Pods are read from the cluster, not from the review: any caller that knows the URL can forge a review.
    pods: get("pods", { maxAge: 0 }),
    namespaces: get("namespaces", { maxAge: 0 }),
    calls: ledger(),
    ask: http(),
  },

  async validate(object: Pod, { request, settings, now, pods, namespaces, calls, ask }) {
    const isEviction = request.subResource === "eviction";
    if (!isEviction && !isMarkedAndNotBeingDeleted(object, settings)) return;
    // A deletecollection request causes one review per object, and `request.name` is empty in each.
    const name = request.name || object.metadata?.name || "";
    const pod = await pods({ name, namespace: request.namespace });
    if (!pod || !isMarkedAndNotBeingDeleted(pod, settings) || !isRunningOnNode(pod) || isFinished(pod, settings))
      return;
    // The pod that was read now isn't the one in the request: another pod of the same name has replaced that one.
    if (!isEviction && areDifferentPods(pod, object)) return;
    const { gracePeriodSeconds, dryRun } = toMap(isEviction ? toMap(object).deleteOptions : request.options);
    if (gracePeriodSeconds === 0 && mayForceDeletion(request, settings)) return;
    // Without `endingNamespaces`, pods of a namespace that is being deleted are not guarded.
    if (!settings.endingNamespaces) {
      const namespace = await namespaces({ name: request.namespace ?? "" });
      if (!namespace || namespace.metadata?.deletionTimestamp) return;
    }
    const context = { settings, now, calls, ask };
    if (await askPodWhetherFinished(pod, context)) return;

    const isDryRun = request.dryRun || toList(dryRun).length > 0;
    const outcome = isDryRun || settings.cleanUp === "" ? undefined : await startCleanUp(pod, context);
    const message = `pod "${name}" must clean up first; try again when ${describeFinishSettings(settings).join(" or ")} shows that it has finished`;
    return {
      // `kubectl drain` continues after 429 and gives up after any other code.
      refuse: isEviction ? { code: 429, reason: "TooManyRequests", message } : message,
      ...(outcome && { audit: { "clean-up": outcome } }),
    };
  },
});

function buildMarkCondition(mapName: "labels" | "annotations", key: string) {
  return key === "" ? "false" : `${JSON.stringify(key)} in oldObject.metadata.?${mapName}.orValue({})`;
}
