import type { Fields } from "../../../infra/parity/requests.ts";
import {
  annotate,
  api,
  claim,
  claims,
  create,
  label,
  patch,
  pod,
  pods,
  remove,
  type Scenario,
  sized,
} from "../../../infra/parity/steps.ts";

const priorityClasses = "/apis/scheduling.k8s.io/v1/priorityclasses";
const storageClasses = "/apis/storage.k8s.io/v1/storageclasses";
const ingressClasses = "/apis/networking.k8s.io/v1/ingressclasses";
const ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const unclassed = (name: string, metadata: Fields = {}) => {
  const body = claim(name);
  return { ...body, metadata: { ...body.metadata, ...metadata } };
};
const bind = (path: string, storage: string) =>
  patch(`${path}/status`, { status: { phase: "Bound", capacity: { storage } } }, "merge-patch+json");
const grow = (path: string, storage: string) => patch(path, { spec: { resources: { requests: { storage } } } });
const isDefault = (mark: string, value = "true") => ({ annotations: { [`${mark}/is-default-class`]: value } });
const storageClass = (name: string, metadata: Fields = {}, allowVolumeExpansion = false) => {
  return { metadata: { name, ...metadata }, provisioner: "example.com", allowVolumeExpansion };
};
const ingressClass = (name: string, metadata: Fields) => {
  return { metadata: { name, ...metadata }, spec: { controller: "example.com/a" } };
};
const ingress = (name: string, spec: Fields = {}, annotations: Fields = {}) => {
  const defaultBackend = { service: { name: "a", port: { number: 80 } } };
  return { metadata: { name, annotations }, spec: { defaultBackend, ...spec } };
};

export const classScenarios: Record<string, Scenario[]> = {
  priority: [
    {
      name: "pods with classes and without, before there is a default one and after",
      before: [
        { metadata: { name: "high" }, value: 1000 },
        { metadata: { name: "polite" }, value: 500, preemptionPolicy: "Never" },
      ].map((one) => create(priorityClasses, one)),
      calls: [
        ...["high", "polite", "missing", "system-node-critical"].map((priorityClassName) =>
          create(pods, pod(`priority-${priorityClassName}`, { priorityClassName })),
        ),
        create(pods, pod("same", { priorityClassName: "high", priority: 1000 })),
        create(pods, pod("other", { priorityClassName: "high", priority: 5 })),
        create(pods, pod("impatient", { priorityClassName: "polite", preemptionPolicy: "PreemptLowerPriority" })),
        create(pods, pod("unclassed", { priority: 5 })),
        patch(`${pods}/same`, [{ op: "remove", path: "/spec/priority" }], "json-patch+json"),
        create(priorityClasses, { metadata: { name: "usual" }, value: 100, globalDefault: true }),
        create(pods, pod("unclassed")),
        create(priorityClasses, { metadata: { name: "second" }, value: 10, globalDefault: true }),
        patch(`${priorityClasses}/high`, { globalDefault: true }, "merge-patch+json"),
        label(`${priorityClasses}/usual`),
        remove(`${priorityClasses}/usual`),
        create(pods, pod("unclassed-again")),
      ],
    },
  ],

  "default-storage-class": [
    {
      name: "claims with classes and without, before there is a default one and after",
      calls: [
        create(claims, unclassed("early")),
        create(storageClasses, storageClass("almost", isDefault("storageclass.kubernetes.io", "yes"))),
        create(claims, unclassed("early-still")),
        create(storageClasses, storageClass("standard", isDefault("storageclass.kubernetes.io"))),
        create(claims, unclassed("defaulted")),
        create(claims, sized("empty", "1Gi")),
        create(claims, sized("named", "1Gi", "gold")),
        create(claims, unclassed("annotated", { annotations: { "volume.beta.kubernetes.io/storage-class": "" } })),
        remove(`${storageClasses}/standard`),
        create(storageClasses, storageClass("older", isDefault("storageclass.beta.kubernetes.io"))),
        create(claims, unclassed("defaulted-again")),
        remove(`${storageClasses}/older`),
      ],
    },
  ],

  "default-ingress-class": [
    {
      name: "ingresses with classes and without, before there is a default one and after",
      calls: [
        create(ingresses, ingress("early")),
        create(ingressClasses, ingressClass("almost", isDefault("ingressclass.kubernetes.io", "yes"))),
        create(ingresses, ingress("early-still")),
        create(ingressClasses, ingressClass("standard", isDefault("ingressclass.kubernetes.io"))),
        create(ingresses, ingress("defaulted")),
        create(ingresses, ingress("named", { ingressClassName: "mine" })),
        create(ingresses, ingress("annotated", {}, { "kubernetes.io/ingress.class": "" })),
        remove(`${ingressClasses}/standard`),
      ],
    },
  ],

  "persistent-volume-claim-resize": [
    {
      name: "claims that grow, by class",
      before: [
        create(storageClasses, storageClass("elastic", {}, true)),
        create(storageClasses, storageClass("rigid")),
        ...["elastic", "rigid", "gone", ""].flatMap((name) => {
          const path = `${claims}/growing-${name || "unclassed"}`;
          return [create(claims, sized(`growing-${name || "unclassed"}`, "1Gi", name)), bind(path, "1Gi")];
        }),
        create(claims, sized("pending", "1Gi", "elastic")),
      ],
      calls: [
        ...["elastic", "rigid", "gone", "unclassed"].map((name) => grow(`${claims}/growing-${name}`, "2Gi")),
        grow(`${claims}/pending`, "2Gi"),
        grow(`${claims}/growing-elastic`, "1.5Gi"),
        label(`${claims}/growing-rigid`),
        annotate(`${claims}/growing-elastic`, { "volume.beta.kubernetes.io/storage-class": "rigid" }),
        grow(`${claims}/growing-elastic`, "3Gi"),
      ],
    },
  ],

  "runtime-class": [
    {
      name: "pods of classes of all sorts",
      before: [
        { metadata: { name: "plain" }, handler: "plain" },
        { metadata: { name: "heavy" }, handler: "heavy", overhead: { podFixed: { cpu: "250m" } } },
        {
          metadata: { name: "picky" },
          handler: "picky",
          scheduling: { nodeSelector: { env: "prod" }, tolerations: [{ key: "dedicated", operator: "Exists" }] },
        },
      ].map((one) => create(api("node.k8s.io", "v1/runtimeclasses"), one)),
      calls: [
        ...["plain", "heavy", "picky", "missing"].map((runtimeClassName) =>
          create(pods, pod(`class-${runtimeClassName}`, { runtimeClassName })),
        ),
        create(pods, pod("as-heavy", { runtimeClassName: "heavy", overhead: { cpu: "0.25" } })),
        create(pods, pod("heavier", { runtimeClassName: "heavy", overhead: { cpu: "1" } })),
        create(pods, pod("burdened", { overhead: { cpu: "1" } })),
        create(pods, pod("plainly-burdened", { runtimeClassName: "plain", overhead: { cpu: "1" } })),
        create(pods, pod("elsewhere", { runtimeClassName: "picky", nodeSelector: { env: "test" } })),
        create(pods, pod("within", { runtimeClassName: "picky", nodeSelector: { env: "prod", disk: "ssd" } })),
        label(`${pods}/class-heavy`),
      ],
    },
  ],
};
