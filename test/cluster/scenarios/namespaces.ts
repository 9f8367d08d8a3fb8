import type { Fields } from "../../../infra/parity/requests.ts";
import {
  annotate,
  as,
  create,
  home,
  image,
  label,
  limits,
  lost,
  patch,
  pod,
  remove,
  requests,
  role,
  type Scenario,
  see,
  service,
  sized,
  tolerations,
  within,
} from "../../../infra/parity/steps.ts";

const configMap = (name: string) => ({ kind: "ConfigMap", metadata: { name } });
const question = (namespace: string) =>
  create(`/apis/authorization.k8s.io/v1/namespaces/${namespace}/localsubjectaccessreviews`, {
    spec: { user: "jane", resourceAttributes: { namespace, verb: "get", resource: "pods" } },
  });
const using = (...containers: Fields[]) => ({
  containers: containers.map((resources, index) => ({ name: `c${index}`, image, resources })),
});
const limited = (name: string, ...containers: Fields[]) => create(within("limited"), pod(name, using(...containers)));
const secretOf = (name: string) => ({ valueFrom: { secretKeyRef: { name, key: "k" } } });
const mirror = { annotations: { "kubernetes.io/config.mirror": "x" } };
const accounted = (name: string, spec: Fields = {}, metadata: Fields = {}) =>
  create(within("accounted"), pod(name, spec, metadata));
const strict = (name: string, spec: Fields) => accounted(name, { serviceAccountName: "strict", ...spec });
const owned = (name: string, blockOwnerDeletion?: boolean, owner: Fields = {}) => {
  const reference = { apiVersion: "apps/v1", kind: "Deployment", name: "o", uid: "1", ...owner };
  const ownerReferences = [{ ...reference, ...(blockOwnerDeletion !== undefined && { blockOwnerDeletion }) }];
  return { metadata: { name, ownerReferences } };
};
const selector = "scheduler.alpha.kubernetes.io/node-selector";
const lasting = ["node.kubernetes.io/not-ready", lost].map((key) => ({ key, operator: "Exists" }));

export const namespaceScenarios: Record<string, Scenario[]> = {
  "namespace-auto-provision": [
    {
      name: "what is created where no namespace is, and then where it is",
      calls: [
        create(`${within("provided", "configmaps")}?dryRun=All`, configMap("a")),
        see("/api/v1/namespaces/provided"),
        create(within("provided", "configmaps"), configMap("a")),
        see("/api/v1/namespaces/provided"),
        create(within("provided", "configmaps"), configMap("b")),
      ],
    },
    {
      name: "what is refused once its namespace is there",
      calls: [create(within("begun", "configmaps"), configMap("Not_Valid")), see("/api/v1/namespaces/begun")],
    },
    {
      name: "namespaces that can't be",
      calls: ["Shop", "a_b"].map((name) => create(within(name, "configmaps"), configMap("a"))),
    },
    { name: "a question about nowhere", calls: [question("asked"), see("/api/v1/namespaces/asked")] },
    {
      name: "what comes into a namespace that goes",
      before: home("leaving"),
      calls: [remove("/api/v1/namespaces/leaving"), create(within("leaving", "configmaps"), configMap("a"))],
    },
  ],

  "namespace-lifecycle": [
    {
      name: "the namespaces that must last, and others, as they are deleted",
      before: home("transient"),
      calls: ["default", "kube-system", "kube-public", "kube-node-lease", "transient"].map((name) =>
        remove(`/api/v1/namespaces/${name}`),
      ),
    },
    {
      name: "what is created where no namespace is",
      calls: [
        create(within("missing", "configmaps"), configMap("a")),
        create(`${within("missing", "configmaps")}?dryRun=All`, configMap("a")),
        question("missing"),
      ],
    },
    {
      name: "what comes, changes and goes in a namespace that goes",
      before: [...home("ending"), create(within("ending", "configmaps"), configMap("older"))],
      calls: [
        remove("/api/v1/namespaces/ending"),
        create(within("ending", "configmaps"), configMap("a")),
        create(within("ending", "configmaps"), { metadata: { generateName: "made-" } }),
        create(within("ending", "serviceaccounts/default/token"), { spec: { audiences: ["a"] } }),
        label(within("ending", "configmaps/older")),
        question("ending"),
        remove(within("ending", "configmaps/older")),
      ],
    },
  ],

  "namespace-exists": [
    {
      name: "what is created where no namespace is",
      calls: [
        create(within("nothing", "configmaps"), configMap("a")),
        create(within("nothing", "configmaps"), configMap("Not_Valid")),
        question("nothing"),
      ],
    },
    {
      name: "what comes, changes and goes where one is",
      before: home("existing"),
      calls: [
        create(within("existing", "configmaps"), configMap("a")),
        label(within("existing", "configmaps/a")),
        remove(within("existing", "configmaps/a")),
        question("existing"),
      ],
    },
    {
      name: "what comes into a namespace that goes",
      before: home("going"),
      calls: [remove("/api/v1/namespaces/going"), create(within("going", "configmaps"), configMap("a"))],
    },
  ],

  "limit-ranger": [
    {
      name: "pods, within limits and beyond them",
      before: [
        ...home("limited"),
        create(within("limited", "limitranges"), {
          metadata: { name: "all" },
          spec: {
            limits: [
              {
                type: "Container",
                default: { cpu: "500m", memory: "1Gi" },
                defaultRequest: { cpu: "100m" },
                min: { cpu: "50m" },
                max: { cpu: "2", memory: "2Gi" },
                maxLimitRequestRatio: { cpu: "10" },
              },
              { type: "Pod", max: { cpu: "2500m" }, min: { memory: "64Mi" } },
              { type: "PersistentVolumeClaim", min: { storage: "1Gi" }, max: { storage: "5Gi" } },
            ],
          },
        }),
      ],
      calls: [
        limited("plain", {}),
        limited("two", {}, requests({ cpu: "200m" }).resources, limits({ cpu: "400m", memory: "64Mi" }).resources),
        limited("full", { requests: { cpu: "0.1", memory: "1Gi" }, limits: { cpu: "1", memory: "1Gi" } }),
        limited("zero", { requests: { cpu: "0", memory: "1Mi" } }),
        limited("much", limits({ cpu: "3" }).resources),
        limited("little", { requests: { cpu: "10m" } }),
        limited("wide", { requests: { cpu: "100m" }, limits: { cpu: "1500m" } }),
        limited("below", requests({ cpu: "600m" }).resources),
        limited("thin", { requests: { memory: "1Mi" }, limits: { memory: "2Mi" } }),
        limited("together", limits({ cpu: "1500m" }).resources, limits({ cpu: "1500m" }).resources),
        create(
          within("limited"),
          pod("beside", {
            initContainers: [
              { name: "s", image, restartPolicy: "Always", ...limits({ cpu: "1" }) },
              { name: "i", image, ...limits({ cpu: "2" }) },
            ],
          }),
        ),
        create(within("limited"), pod("whole", { resources: { limits: { cpu: "3", memory: "1Gi" } } })),
        create(within("limited"), pod("", using({ requests: { cpu: "10m" } }), { generateName: "made-" })),
        label(`${within("limited")}/plain`),
        patch(`${within("limited")}/plain/resize`, { spec: { containers: [{ name: "a" }] } }),
        patch(`${within("limited")}/full/resize`, { spec: { containers: [{ name: "c0", ...limits({ cpu: "3" }) }] } }),
        patch(`${within("limited")}/full/resize`, {
          spec: { containers: [{ name: "c0", ...limits({ cpu: "0.9" }) }] },
        }),
      ],
    },
    {
      name: "claims, within limits and beyond them, and after those were tightened",
      calls: [
        ...["512Mi", "1Gi", "3Gi", "6Gi"].map((storage, index) =>
          create(within("limited", "persistentvolumeclaims"), sized(`claim-${index}`, storage)),
        ),
        patch(
          `${within("limited", "limitranges")}/all`,
          [{ op: "replace", path: "/spec/limits/2/max/storage", value: "2Gi" }],
          "json-patch+json",
        ),
        ...["claim-1", "claim-2"].map((name) => label(`${within("limited", "persistentvolumeclaims")}/${name}`)),
      ],
    },
  ],

  "service-account": [
    {
      name: "pods with accounts of all sorts",
      before: [
        ...home("accounted"),
        ...[
          { metadata: { name: "quiet" }, automountServiceAccountToken: false },
          { metadata: { name: "pulling" }, imagePullSecrets: [{ name: "pull" }, { name: "other" }] },
          {
            metadata: { name: "strict", annotations: { "kubernetes.io/enforce-mountable-secrets": "true" } },
            secrets: [{ name: "mine" }],
            imagePullSecrets: [{ name: "pull" }],
          },
        ].map((account) => create(within("accounted", "serviceaccounts"), account)),
      ],
      calls: [
        accounted("plain"),
        accounted("quiet", { serviceAccountName: "quiet" }),
        accounted("loud", { serviceAccountName: "quiet", automountServiceAccountToken: true }),
        accounted("older", { serviceAccount: "pulling" }),
        accounted("own", { serviceAccountName: "pulling", imagePullSecrets: [{ name: "own" }] }),
        accounted("lost", { serviceAccountName: "missing" }),
        accounted("mounted", { volumes: [{ name: "kube-api-access-mine", emptyDir: {} }] }),
        accounted("", {}, { generateName: "made-" }),
        label(`${within("accounted")}/plain`),
      ],
    },
    {
      name: "mirror pods",
      calls: [
        accounted("mirror", { nodeName: "n" }, mirror),
        accounted("mirror-account", { nodeName: "n", serviceAccountName: "quiet" }, mirror),
        accounted("mirror-secret", { nodeName: "n", imagePullSecrets: [{ name: "s" }] }, mirror),
        accounted(
          "mirror-volume",
          { nodeName: "n", volumes: [{ name: "v", projected: { sources: [{ secret: { name: "s" } }] } }] },
          mirror,
        ),
      ],
    },
    {
      name: "pods whose account holds them to its secrets",
      calls: [
        strict("volume", { volumes: [{ name: "v", secret: { secretName: "other" } }] }),
        strict("listed", { volumes: [{ name: "v", secret: { secretName: "mine" } }] }),
        strict("projected", { volumes: [{ name: "v", projected: { sources: [{ secret: { name: "other" } }] } }] }),
        strict("variable", { containers: [{ name: "a", image, env: [{ name: "V", ...secretOf("other") }] }] }),
        strict("variables", { containers: [{ name: "a", image, envFrom: [{ secretRef: { name: "other" } }] }] }),
        strict("init", { initContainers: [{ name: "i", image, env: [{ name: "V", ...secretOf("other") }] }] }),
        strict("pull", { imagePullSecrets: [{ name: "pull" }, { name: "other" }] }),
        ...["mine", "other"].map((name) =>
          patch(`${within("accounted")}/listed/ephemeralcontainers`, {
            spec: { ephemeralContainers: [{ name: `e-${name}`, image, env: [{ name: "V", ...secretOf(name) }] }] },
          }),
        ),
      ],
    },
  ],

  "pod-node-selector": [
    {
      name: "pods where their namespace chooses nodes",
      before: [
        ...home("selecting", { [selector]: "env=prod, tier = a" }),
        ...home("selecting-badly", { [selector]: "env in (a)" }),
      ],
      calls: [
        ...[{}, { env: "prod" }, { disk: "ssd" }, { env: "test" }].map((nodeSelector, index) =>
          create(within("selecting"), pod(`selecting-${index}`, { nodeSelector })),
        ),
        create(within("selecting"), pod("", { nodeSelector: { env: "test" } }, { generateName: "made-" })),
        create(within("selecting-badly"), pod("badly")),
        annotate("/api/v1/namespaces/selecting", { [selector]: "" }),
        create(within("selecting"), pod("freely", { nodeSelector: { env: "test" } })),
        label(`${within("selecting")}/freely`),
      ],
    },
  ],

  "pod-toleration-restriction": [
    {
      name: "pods that are given tolerations, until few are allowed",
      before: home("tolerating", tolerations("defaultTolerations", [{ key: "dedicated", operator: "Exists" }])),
      calls: [
        create(within("tolerating"), pod("plain")),
        create(within("tolerating"), pod("burstable", using(requests({ cpu: "1" }).resources))),
        create(
          within("tolerating"),
          pod("narrower", { tolerations: [{ key: "dedicated", operator: "Equal", value: "x", effect: "NoSchedule" }] }),
        ),
        label(`${within("tolerating")}/plain`),
        annotate("/api/v1/namespaces/tolerating", tolerations("tolerationsWhitelist", lasting)),
        create(within("tolerating"), pod("late")),
        label(`${within("tolerating")}/plain`),
        annotate("/api/v1/namespaces/tolerating", {
          ...tolerations("defaultTolerations", []),
          ...tolerations("tolerationsWhitelist", [...lasting, { key: "a", operator: "Exists" }]),
        }),
        ...["a", "b"].map((key) =>
          create(within("tolerating"), pod(`with-${key}`, { tolerations: [{ key, operator: "Exists" }] })),
        ),
        remove(`${within("tolerating")}/plain`),
      ],
    },
  ],

  "owner-references-permission-enforcement": [
    {
      name: "owners that are set by those who may do little",
      before: [
        ...home("owning"),
        ...role("owner", "jane", [
          { apiGroups: [""], resources: ["configmaps", "services"], verbs: ["get", "create", "update", "patch"] },
          { apiGroups: [""], resources: ["services"], verbs: ["delete"] },
          { apiGroups: ["apps"], resources: ["deployments/finalizers"], resourceNames: ["mine"], verbs: ["update"] },
        ]),
        create(within("owning", "configmaps"), configMap("plain")),
        create(within("owning", "configmaps"), owned("owned", true)),
        create(within("owning", "services"), service("plain")),
      ],
      calls: [
        create(within("owning", "configmaps"), owned("free")),
        create(within("owning", "configmaps"), owned("blocking", true)),
        create(within("owning", "configmaps"), owned("blocking-mine", true, { name: "mine" })),
        create(
          within("owning", "configmaps"),
          owned("blocking-nobody", true, { apiVersion: "example.com/v1", kind: "Nope" }),
        ),
        patch(`${within("owning", "configmaps")}/plain`, owned("plain"), "merge-patch+json"),
        patch(`${within("owning", "configmaps")}/owned`, { metadata: { ownerReferences: [] } }, "merge-patch+json"),
        label(`${within("owning", "configmaps")}/owned`),
        patch(`${within("owning", "services")}/plain`, owned("plain"), "merge-patch+json"),
        patch(`${within("owning", "services")}/plain`, owned("plain", true), "merge-patch+json"),
        patch(`${within("owning", "services")}/plain`, owned("plain", true, { name: "mine" }), "merge-patch+json"),
      ].map((call) => as("jane", call)),
    },
  ],
};
