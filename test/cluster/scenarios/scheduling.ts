import type { Fields } from "../../../infra/parity/requests.ts";
import {
  api,
  create,
  home,
  image,
  kubelet,
  label,
  patch,
  pod,
  pods,
  protection,
  requests,
  resize,
  type Scenario,
  see,
} from "../../../infra/parity/steps.ts";

const podGroups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const podGroup = (name: string, finalizers: string[]) => {
  const spec = { schedulingPolicy: { basic: {} } };
  return { apiVersion: "scheduling.k8s.io/v1alpha2", kind: "PodGroup", metadata: { name, finalizers }, spec };
};
const bound = (name: string, to: string, kind = "Node") =>
  create(`${pods}/${name}/binding`, { metadata: { name }, target: { kind, name: to } });
const features = ["InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"];
const large = { allocatable: { cpu: "8", memory: "8Gi" } };
/** A pod that stands on a node already. */
const placed = (name: string, nodeName: string, spec: Fields = {}) =>
  create(pods, pod(name, { nodeName, containers: [{ name: "a", image, ...requests({ cpu: "1" }) }], ...spec }));
const resizeTo = (name: string, cpu: string) => resize(name, { containers: [{ name: "a", ...requests({ cpu }) }] });
const grouped = (resource: string) => api("scheduling.k8s.io", `v1alpha2/namespaces/grouped/${resource}`);
const gang = { gang: { minCount: 2 } };
const jobs = api("batch", "v1/namespaces/grouped/jobs");
const job = (name: string, podGroupName?: string) => {
  const group = podGroupName !== undefined && { schedulingGroup: { podGroupName } };
  const template = { spec: { restartPolicy: "Never", ...group, containers: [{ name: "a", image }] } };
  return { metadata: { name }, spec: { parallelism: 2, completions: 4, template } };
};
const madeOf = (workloadName: string, podGroupTemplateName: string) => {
  return { podGroupTemplateRef: { workload: { workloadName, podGroupTemplateName } } };
};

export const schedulingScenarios: Record<string, Scenario[]> = {
  "pod-group-protection": [
    {
      name: "pod groups, some protected",
      calls: [[], ["example.com/keep"], [protection], ["example.com/keep", protection]].map((finalizers, index) =>
        create(podGroups, podGroup(`group-${index}`, finalizers)),
      ),
    },
    {
      name: "a pod group that was there unprotected",
      before: [create(podGroups, podGroup("older", []))],
      calls: [label(`${podGroups}/older`)],
    },
  ],

  "pod-topology-labels": [
    {
      name: "pods that come to nodes",
      before: [
        ...kubelet(
          "zoned",
          { "topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", rack: "k" },
          large,
        ),
        ...kubelet("unzoned", { rack: "k" }, large),
        ...["to-zoned", "to-unzoned", "to-nothing", "to-shelf"].map((name) =>
          create(pods, pod(name, {}, { labels: { app: "a", "topology.kubernetes.io/zone": "mine" } })),
        ),
      ],
      calls: [
        bound("to-zoned", "zoned"),
        see(`${pods}/to-zoned`),
        bound("to-unzoned", "unzoned"),
        see(`${pods}/to-unzoned`),
        bound("to-nothing", "nothing"),
        see(`${pods}/to-nothing`),
        bound("to-shelf", "zoned", "Shelf"),
        ...["zoned", "unzoned", "nothing"].map((nodeName) => create(pods, pod(`on-${nodeName}`, { nodeName }))),
        label(`${pods}/on-zoned`),
      ],
    },
  ],

  "pod-group-workload-exists": [
    {
      name: "pod groups of workloads",
      before: [
        ...home("grouped"),
        create(grouped("workloads"), {
          metadata: { name: "training" },
          spec: { podGroupTemplates: [{ name: "workers", schedulingPolicy: gang }] },
        }),
      ],
      calls: [{}, madeOf("training", "workers"), madeOf("training", "spare"), madeOf("nothing", "workers")].map(
        (made, index) =>
          create(grouped("podgroups"), {
            metadata: { name: `made-${index}` },
            spec: { schedulingPolicy: gang, ...made },
          }),
      ),
    },
  ],

  "job-validation": [
    {
      name: "jobs in groups that become wider",
      before: [
        create(grouped("podgroups"), { metadata: { name: "gang" }, spec: { schedulingPolicy: gang } }),
        create(grouped("podgroups"), { metadata: { name: "loose" }, spec: { schedulingPolicy: { basic: {} } } }),
        ...["gang", "loose", "missing", undefined].map((group) => create(jobs, job(`in-${group ?? "none"}`, group))),
      ],
      calls: [
        ...["gang", "loose", "missing", "none"].map((name) =>
          patch(`${jobs}/in-${name}`, { spec: { parallelism: 3 } }),
        ),
        patch(`${jobs}/in-gang`, { spec: { suspend: true } }),
        label(`${jobs}/in-gang`),
      ],
    },
  ],

  "node-declared-feature-validator": [
    {
      name: "pods that are resized on nodes that can do so and others",
      before: [
        ...kubelet("able", {}, { ...large, declaredFeatures: features }),
        ...kubelet("unable", {}, large),
        ...["able", "unable", "gone"].map((name) =>
          placed(`resized-${name}`, name, {
            resources: { requests: { cpu: "2" } },
            initContainers: [{ name: "i", image, ...requests({ cpu: "1" }) }],
          }),
        ),
      ],
      calls: ["able", "unable", "gone"].flatMap((name) => [
        resizeTo(`resized-${name}`, "1500m"),
        resize(`resized-${name}`, { resources: { requests: { cpu: "3" } } }),
        resize(`resized-${name}`, { initContainers: [{ name: "i", ...requests({ cpu: "2" }) }] }),
        label(`${pods}/resized-${name}`),
      ]),
    },
  ],

  "pod-resize-validator": [
    {
      name: "pods that are resized on nodes of all sizes and systems",
      before: [
        ...kubelet("roomy", { "kubernetes.io/os": "linux" }, large),
        ...kubelet("small", {}, { allocatable: { cpu: "2", memory: "1Gi" } }),
        ...kubelet("windows", { "kubernetes.io/os": "windows" }, large),
        ...kubelet("silent", {}, {}),
        ...["roomy", "small", "windows", "silent", "gone"].map((name) => placed(`grown-${name}`, name)),
        create(pods, pod("grown-nowhere", { containers: [{ name: "a", image, ...requests({ cpu: "1" }) }] })),
      ],
      calls: ["roomy", "small", "windows", "silent", "gone", "nowhere"].flatMap((name) => [
        resizeTo(`grown-${name}`, "3"),
        resizeTo(`grown-${name}`, "500m"),
        label(`${pods}/grown-${name}`),
      ]),
    },
  ],
};
