import type { Phase } from "#lib/rule.ts";
import type { Random } from "../../../infra/testing/random.ts";
import type { WebhookManifests } from "../../parity/rule-server.ts";
import { createScript, type HookScript } from "./scripts.ts";
import { vocabulary } from "./vocabulary.ts";

/** Webhook configurations, and the scripts that answer in place of their webhooks. */
export interface ScriptedSet {
  manifests: WebhookManifests;
  /** The scripts, and descriptions of what they do, by the first segment of the webhook's URL path. */
  scripts: Record<string, { what: string; answer: HookScript }>;
}

type Entry = WebhookManifests[number]["webhooks"][number];

/** The name of a webhook that is called first in every set, allows everything, and so gets the unchanged request. */
export const observer = "observer.postern.dev";

const { resources, groups, versions, operations, selectors, conditions } = vocabulary;

const namespaceSelectors = [
  ...selectors,
  { matchLabels: { "kubernetes.io/metadata.name": "plain" } },
  { matchExpressions: [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["plain", "tiers"] }] },
];

/** Creates the observer's configuration and a few random configurations. `url` is the base URL of the scripts. */
export const createSet = (number: number, url: string, ca: string, random: Random): ScriptedSet => {
  const scripts: ScriptedSet["scripts"] = {};
  const caBundle = Buffer.from(ca).toString("base64");
  let count = 0;
  const createEntry = (phase: Phase): Entry => {
    count += 1;
    const key = `s${number}h${count}`;
    scripts[key] = createScript(phase, random);
    const isSlow = scripts[key].what === "never answers";
    // No webhook gets leases: the detector writes leases to find out whether the API server uses a configuration.
    const matchesAllGroups = random.decide(0.2);
    const rules = Array.from({ length: random.pick([1, 1, 1, 2, 3]) }, () => ({
      apiGroups: matchesAllGroups ? ["*"] : random.pick(groups),
      apiVersions: random.pick(versions),
      resources: random.pick(resources),
      operations: random.pick(operations) as "*"[],
      scope: random.pick(["*", "*", "*", "Cluster", "Namespaced"] as const),
    }));
    const expressions = [
      ...(matchesAllGroups ? ['request.resource.resource != "leases"'] : []),
      ...(random.decide(0.25) ? random.pickSome(conditions, { atLeastOne: true }).slice(0, 3) : []),
    ];
    return {
      name: `h${count}.${random.pick(["a", "b"])}.example.com`,
      clientConfig: { url: `${url}/${key}${random.pick(["", "/", "/x//y", "/x/../z"])}`, caBundle },
      rules,
      failurePolicy: isSlow ? "Ignore" : random.pick(["Fail", "Ignore"] as const),
      matchPolicy: random.pick(["Equivalent", "Equivalent", "Exact"] as const),
      ...(random.decide(0.15) && {
        namespaceSelector: random.pick(namespaceSelectors) as NonNullable<Entry["namespaceSelector"]>,
      }),
      ...(random.decide(0.3) && { objectSelector: random.pick(selectors) as NonNullable<Entry["objectSelector"]> }),
      ...(expressions.length > 0 && {
        matchConditions: expressions.map((expression, index) => ({ name: `c${index}`, expression })),
      }),
      sideEffects: random.pick(["None", "NoneOnDryRun"] as const),
      timeoutSeconds: isSlow ? 1 : random.pick([20, 25]),
      ...(phase === "mutate" && { reinvocationPolicy: random.pick(["IfNeeded", "IfNeeded", "Never"] as const) }),
      admissionReviewVersions: random.pick([["v1"], ["v1"], ["v1beta1"], ["v9", "v1beta1", "v1"], ["v1", "v1beta1"]]),
    };
  };
  const createConfiguration = (phase: Phase): WebhookManifests[number] => {
    const kind = phase === "mutate" ? "MutatingWebhookConfiguration" : "ValidatingWebhookConfiguration";
    count += 1;
    const name = `${random.pick(["a", "m", "z", "10", "9"])}-${count}`;
    const webhooks = Array.from({ length: 1 + random.drawBelow(6) }, () => createEntry(phase));
    return {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind,
      metadata: { name, labels: {} as WebhookManifests[number]["metadata"]["labels"] },
      webhooks,
    };
  };
  const observerConfiguration: WebhookManifests[number] = {
    ...createConfiguration("mutate"),
    metadata: { name: "00-observer", labels: {} as WebhookManifests[number]["metadata"]["labels"] },
    webhooks: [
      {
        name: observer,
        clientConfig: { url: `${url}/observer`, caBundle },
        rules: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] }],
        failurePolicy: "Ignore",
        matchPolicy: "Exact",
        matchConditions: [
          { name: "is-asked", expression: 'has(request.userInfo.extra) && "postern-word" in request.userInfo.extra' },
        ],
        sideEffects: "None",
        timeoutSeconds: 20,
        admissionReviewVersions: ["v1"],
      },
    ],
  };
  const admit: HookScript = ({ uid }, apiVersion) => {
    return { body: JSON.stringify({ kind: "AdmissionReview", apiVersion, response: { uid, allowed: true } }) };
  };
  scripts.observer = { what: "observes", answer: admit };
  const createConfigurations = (phase: Phase) =>
    Array.from({ length: 1 + random.drawBelow(4) }, () => createConfiguration(phase));
  const manifests = [observerConfiguration, ...createConfigurations("mutate"), ...createConfigurations("validate")];
  return { manifests, scripts };
};
